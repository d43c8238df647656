// The learner for Python.
//
// Threads may share a learner: a thread that waits for its turn does not hold the interpreter, and
// long calls release it while they work.
#include "../learner.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "../features.h"
#include "bindings.h"
#include "shared.h"

namespace stopwise {
namespace {

// Multiplications from which a call is worth releasing the interpreter for.
constexpr double kLong = 6e6;

using SharedLearner = Shared<Learner>;
using Bytes = Vector<const unsigned char>;
using ScopeTuple =
    std::tuple<std::size_t, std::size_t, std::size_t, std::size_t, std::size_t>;
using RequestTuple = std::tuple<double, double, double>;
// i, j, the gap, p̂, p̃, whether the gap won, the gain, the arm it won through, the labels that came.
using EvidenceTuple =
    std::tuple<std::size_t, std::size_t, double, double, double, bool, double,
               std::optional<std::uint8_t>, double>;

void update_slow(SharedLearner& shared) {
    const auto rows = static_cast<double>(shared.value.history().rows() + 1);
    const auto width = static_cast<double>(shared.value.plan().width);
    const auto questions = static_cast<double>(shared.value.plan().questions.size());
    shared.slow = rows * width * width * questions > kLong;
}

// A Python object that holds doubles one after another. Cheaper than an ndarray, for the calls of
// every round.
class Doubles {
public:
    explicit Doubles(nb::handle object)
        : held_(PyObject_GetBuffer(object.ptr(), &view_, PyBUF_ND | PyBUF_FORMAT) == 0) {
        if (!held_) PyErr_Clear();
    }
    ~Doubles() {
        if (held_) PyBuffer_Release(&view_);
    }
    Doubles(const Doubles&) = delete;
    Doubles& operator=(const Doubles&) = delete;

    // The numbers, or null if these are not ``n`` doubles.
    const double* data(std::size_t n) const {
        const bool fits = held_ && view_.ndim == 1 && static_cast<std::size_t>(view_.shape[0]) == n &&
                          view_.format != nullptr && std::strcmp(view_.format, "d") == 0 &&
                          reinterpret_cast<std::uintptr_t>(view_.buf) % alignof(double) == 0;
        return fits ? static_cast<const double*>(view_.buf) : nullptr;
    }

private:
    Py_buffer view_;
    bool held_;
};

// The features of a context; without maps the context is the features. Empty if the context is
// invalid.
std::vector<double> features_of(const Learner& learner, nb::handle context,
                                const Monomials* maps) {
    const std::size_t width = learner.plan().width;
    const Doubles given(context);
    const double* const x = given.data(maps == nullptr ? width : maps->context_dim());
    if (x == nullptr) return {};
    std::vector<double> row(width);
    if (maps == nullptr) {
        std::copy_n(x, width, row.begin());
    } else if (maps->width() != width || maps->fill(x, row.data()) != 0) {
        return {};
    }
    return row;
}

// None if the context is invalid.
std::optional<Trace> decide(SharedLearner& shared, nb::handle context, const Monomials* maps) {
    Trace trace;
    trace.row = features_of(shared.value, context, maps);
    if (trace.row.empty()) return std::nullopt;
    shared.call([&] { shared.value.decide(trace.row.data(), trace); });
    return trace;
}

// Where each row of features stops and, if ``rule_stops`` are given, where the rule itself stops. If
// not, the stops are those of the rule, and nothing is explored.
void decide_many(SharedLearner& shared, const Table<const double>& rows,
                 const Vector<std::int64_t>& stops,
                 const std::optional<Vector<std::int64_t>>& rule_stops) {
    Learner& learner = shared.value;
    const std::size_t n = rows.shape(0), width = learner.plan().width;
    require(has_shape(rows, n, width) && has_shape(stops, n) &&
                (!rule_stops || has_shape(*rule_stops, n)),
            "tables of other rounds");
    Trace trace;
    shared.long_call([&] {
        for (std::size_t t = 0; t < n; ++t) {
            const double* const row = rows.data() + t * width;
            if (!rule_stops) {
                stops.data()[t] = static_cast<std::int64_t>(learner.rule_stop(row));
                continue;
            }
            learner.decide(row, trace);
            stops.data()[t] = static_cast<std::int64_t>(trace.stop);
            rule_stops->data()[t] = static_cast<std::int64_t>(trace.rule_stop);
        }
    });
}

// Which of the next decisions go to the last arm at random.
void explore_many(SharedLearner& shared, const Vector<unsigned char>& explored) {
    shared.short_call([&] {
        for (std::size_t t = 0; t < explored.shape(0); ++t) {
            explored.data()[t] = shared.value.explore();
        }
    });
}

Trace begin(SharedLearner& shared) {
    Trace trace;
    trace.row.assign(shared.value.plan().width, 0.0);
    shared.short_call([&] { shared.value.begin(trace); });
    return trace;
}

void check_trace(const Learner& learner, const Trace& trace) {
    require(trace.comparisons.size() == learner.plan().n_pairs(), "a trace of another learner");
}

bool should_stop(SharedLearner& shared, const Numbers1& row, std::size_t arm, Trace& trace) {
    const Learner& learner = shared.value;
    require(has_shape(row, learner.plan().width) && arm < learner.plan().last(), "no such arm");
    check_trace(learner, trace);
    return shared.long_call([&] { return shared.value.should_stop(row.data(), arm, trace); });
}

// ``codes`` packs four bits per arm, equal where the outputs are. Returns the label asked for: its
// probability is 0 if none is. None if the context is invalid.
std::optional<RequestTuple> observe(SharedLearner& shared, nb::handle context,
                                    const Monomials* maps, std::size_t n, std::size_t rule_stop,
                                    std::uint64_t codes) {
    const Plan& plan = shared.value.plan();
    require(n >= 1 && n <= plan.n_arms, "arms");
    require(plan.questions.size() == plan.n_pairs(), "a learner of pairs");
    const std::vector<double> row = features_of(shared.value, context, maps);
    if (row.empty()) return std::nullopt;
    unsigned char differ[kMaxArms * (kMaxArms - 1) / 2] = {};
    for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t j = i + 1; j < n; ++j) {
            differ[plan.pair(i, j)] = ((codes >> (4 * i) ^ codes >> (4 * j)) & 15) != 0;
        }
    }
    const Observation round{row.data(), n - 1, std::min(rule_stop, n - 1), differ, true};
    std::optional<Request> request;
    shared.call([&] {
        request = shared.value.observe(round);
        update_slow(shared);
    });
    if (!request) return RequestTuple(0.0, 0.0, 0.0);
    return RequestTuple(request->probability, request->explored, request->round);
}

void label(SharedLearner& shared, const Numbers1& row, std::size_t rule_stop, const Bytes& right,
           const Bytes& differ, RequestTuple request) {
    const Plan& plan = shared.value.plan();
    const std::size_t n = right.shape(0);
    require(has_shape(row, plan.width) && n >= 1 && n <= plan.n_arms &&
                has_shape(differ, plan.n_pairs()) && plan.rule->takes_labels(),
            "a round of another learner");
    const auto [probability, explored, round] = request;
    Label label{row.data(), n, rule_stop, right.data(), differ.data(), std::nullopt};
    if (probability > 0.0) label.request = Request{probability, explored, round};
    shared.short_call([&] { shared.value.label(label); });
}

// Run recorded rounds in order. ``reach`` is the last arm whose answers are known (−1: none, decide
// only): the learner learns nothing from a deeper stop, unless the round ended there because an arm
// failed (−2 − the last arm known). Labels are those of ``wrong``: 0 or 1 per arm, 2 where unknown.
// The learner has the label of a round that it asks for; ``requests`` gets what it asked for, and NaN
// where it learned nothing.
void run(SharedLearner& shared, const Table<const double>& rows,
         const Table<const unsigned char>& answers, const Vector<const std::int64_t>& reach,
         const std::optional<Table<const unsigned char>>& wrong,
         const Vector<std::int64_t>& stops, const Vector<std::int64_t>& rule_stops,
         const Table<double>& requests) {
    Learner& learner = shared.value;
    const Plan& plan = learner.plan();
    const std::size_t n = rows.shape(0), questions = plan.questions.size();
    require(has_shape(rows, n, plan.width) && has_shape(answers, n, questions) &&
                has_shape(reach, n) && has_shape(stops, n) && has_shape(rule_stops, n) &&
                has_shape(requests, n, std::size_t{3}),
            "tables of other rounds");
    require(!wrong || (has_shape(*wrong, n, plan.n_arms) && questions == plan.n_pairs() &&
                       plan.rule->takes_labels()),
            "labels");
    Trace trace;
    std::vector<unsigned char> right(plan.n_arms);
    const auto last = static_cast<std::int64_t>(plan.last());
    const auto one_round = [&](std::size_t t) {
        const double* row = rows.data() + t * rows.shape(1);
        const unsigned char* revealed = answers.data() + t * questions;
        learner.decide(row, trace);
        rule_stops.data()[t] = static_cast<std::int64_t>(trace.rule_stop);
        auto stop = static_cast<std::int64_t>(trace.stop);
        stops.data()[t] = stop;
        std::int64_t known = std::min(reach.data()[t], last);
        if (known < -1) {  // a failed arm ends the round where the answers end
            known = std::min(-2 - known, last);
            stop = std::min(stop, known);
        }
        double* const request = requests.data() + 3 * t;
        std::fill_n(request, 3, std::nan(""));
        if (stop < 0 || stop > known) return;
        const auto end = static_cast<std::size_t>(stop);
        const auto asked =
            learner.observe({row, end, std::min(trace.rule_stop, end), revealed, true});
        std::fill_n(request, 3, 0.0);
        if (!asked) return;
        request[0] = asked->probability;
        request[1] = asked->explored;
        request[2] = asked->round;
        if (!wrong) return;
        for (std::size_t arm = 0; arm <= end; ++arm) {
            const unsigned char is = wrong->data()[t * plan.n_arms + arm];
            if (is > 1) return;
            right[arm] = is == 0;
        }
        learner.label({row, end + 1, trace.rule_stop, right.data(), revealed, asked});
    };
    shared.long_call([&] {
        for (std::size_t t = 0; t < n; ++t) one_round(t);
        update_slow(shared);
    });
}

// Learn from rounds that ended at ``stops`` (−1: nothing to learn), deciding nothing. ``requests``
// gets the labels asked for; none is without it, nor in a round for which it holds NaN.
void learn(SharedLearner& shared, const Table<const double>& rows,
           const Table<const unsigned char>& answers, const Vector<const std::int64_t>& stops,
           const Vector<const std::int64_t>& rule_stops,
           const std::optional<Table<double>>& requests) {
    Learner& learner = shared.value;
    const Plan& plan = learner.plan();
    const std::size_t n = rows.shape(0), questions = plan.questions.size();
    const auto last = static_cast<std::int64_t>(plan.last());
    require(has_shape(rows, n, plan.width) && has_shape(answers, n, questions) &&
                has_shape(stops, n) && has_shape(rule_stops, n) &&
                (!requests || has_shape(*requests, n, std::size_t{3})),
            "tables of other rounds");
    shared.long_call([&] {
        for (std::size_t t = 0; t < n; ++t) {
            const std::int64_t stop = std::min(stops.data()[t], last);
            if (stop < 0) continue;
            const auto end = static_cast<std::size_t>(stop);
            const auto rule_stop =
                static_cast<std::size_t>(std::max(rule_stops.data()[t], std::int64_t{0}));
            double* const request = requests ? requests->data() + 3 * t : nullptr;
            const bool may_ask = request != nullptr && !std::isnan(request[0]);
            const auto asked =
                learner.observe({rows.data() + t * rows.shape(1), end, std::min(rule_stop, end),
                                 answers.data() + t * questions, may_ask});
            if (!may_ask) continue;
            std::fill_n(request, 3, 0.0);
            if (!asked) continue;
            request[0] = asked->probability;
            request[1] = asked->explored;
            request[2] = asked->round;
        }
        update_slow(shared);
    });
}

// The comparisons of arms up to ``stop`` behind a decision; if ``exact``, with exact estimates, which
// the trace keeps. None if an estimate does not settle.
std::optional<std::vector<EvidenceTuple>> evidence(SharedLearner& shared, Trace& trace,
                                                   std::size_t stop, bool exact) {
    Learner& learner = shared.value;
    const Plan& plan = learner.plan();
    check_trace(learner, trace);
    std::vector<EvidenceTuple> found;
    if (trace.reason != Reason::rule) return found;
    if (exact && !shared.long_call([&] { return learner.exact_evidence(stop, trace); })) {
        return std::nullopt;
    }
    for (std::size_t i = 0; i <= stop; ++i) {
        for (std::size_t j = i + 1; j < plan.n_arms; ++j) {
            const std::optional<Comparison>& compared = trace.comparisons[plan.pair(i, j)];
            if (!compared) continue;
            found.emplace_back(i, j, plan.gap(i, j), plan.rule->shown(compared->estimate),
                               plan.rule->shown(compared->upper), compared->won, compared->gain,
                               compared->through, compared->response);
        }
    }
    return found;
}

nb::bytes save(SharedLearner& shared) {
    const std::vector<unsigned char> bytes = shared.long_call([&] { return shared.value.save(); });
    return nb::bytes(bytes.data(), bytes.size());
}

void restore(SharedLearner& shared, nb::bytes bytes) {
    const auto* data = static_cast<const unsigned char*>(bytes.data());
    const std::size_t size = bytes.size();
    shared.long_call([&] {
        shared.value.restore(data, size);
        update_slow(shared);
    });
}

void check_question(const SharedLearner& shared, std::size_t question) {
    require(question < shared.value.plan().questions.size(), "no such question");
}

std::optional<NumpyNumbers> theta(SharedLearner& shared, std::size_t question) {
    check_question(shared, question);
    std::vector<double> estimate = shared.long_call([&] { return shared.value.theta(question); });
    if (estimate.empty()) return std::nullopt;
    const std::size_t d = estimate.size();
    return numpy(std::move(estimate), {d});
}

std::pair<NumpyNumbers, NumpyNumbers> gram(SharedLearner& shared, std::size_t question) {
    check_question(shared, question);
    auto [matrix, inverse] = shared.long_call([&] {
        const Factor factor = shared.value.gram(question);
        return std::make_pair(factor.matrix(), factor.inverse());
    });
    const auto d = static_cast<std::size_t>(std::lround(std::sqrt(matrix.size())));
    return {numpy(std::move(matrix), {d, d}), numpy(std::move(inverse), {d, d})};
}

std::map<std::string, std::int64_t> effort(SharedLearner& shared) {
    return shared.short_call([&]() -> std::map<std::string, std::int64_t> {
        const Effort& effort = shared.value.effort();
        return {{"passes", effort.passes},
                {"hessians", effort.hessians},
                {"rows_visited", effort.rows_visited},
                {"settled", effort.settled},
                {"rows_stored", static_cast<std::int64_t>(shared.value.history().rows())}};
    });
}

// A property that reads one number of a learner.
template <class Number>
auto read(Number (Learner::*number)() const) {
    return [number](SharedLearner& shared) {
        return shared.short_call([&] { return (shared.value.*number)(); });
    };
}

// A trace as plain values: the reason, the stops, whether it explored, the number and the revision,
// the features, and for each pair its comparison.
using ComparisonTuple =
    std::tuple<double, double, double, double, std::optional<std::uint8_t>, bool>;
using TraceTuple = std::tuple<int, std::size_t, std::size_t, bool, std::int64_t, std::int64_t,
                              std::vector<double>, std::vector<std::optional<ComparisonTuple>>>;

TraceTuple trace_state(const Trace& trace) {
    std::vector<std::optional<ComparisonTuple>> comparisons;
    for (const std::optional<Comparison>& c : trace.comparisons) {
        comparisons.emplace_back();
        if (c) comparisons.back() = {c->estimate, c->upper, c->gain, c->response, c->through, c->won};
    }
    return {static_cast<int>(trace.reason), trace.stop, trace.rule_stop, trace.explored, trace.draw,
            trace.revision, trace.row, std::move(comparisons)};
}

Trace trace_of(const TraceTuple& state) {
    const auto& [reason, stop, rule_stop, explored, draw, revision, row, comparisons] = state;
    require(reason >= 0 && reason <= 2, "a trace");
    Trace trace{static_cast<Reason>(reason), stop, rule_stop, explored, draw, revision, row, {}};
    for (const std::optional<ComparisonTuple>& compared : comparisons) {
        trace.comparisons.emplace_back();
        if (!compared) continue;
        const auto& [estimate, upper, gain, response, through, won] = *compared;
        trace.comparisons.back() = {estimate, upper, gain, response, through, won};
    }
    return trace;
}

void bind_trace(nb::module_& m) {
    nb::class_<Trace>(m, "Trace")
        .def_ro("stop", &Trace::stop)
        .def_ro("rule_stop", &Trace::rule_stop)
        .def_ro("explored", &Trace::explored)
        .def_ro("revision", &Trace::revision)
        .def_prop_ro("forced", [](const Trace& trace) { return trace.reason == Reason::forced; })
        .def_prop_ro("fixed_by_labels",
                     [](const Trace& trace) { return trace.reason == Reason::fixed_by_labels; })
        .def("__getstate__", &trace_state)
        .def("__setstate__",
             [](Trace& trace, const TraceTuple& state) { new (&trace) Trace(trace_of(state)); });
}

}  // namespace

void bind_learner(nb::module_& m) {
    bind_trace(m);
    nb::class_<SharedLearner>(m, "Learner")
        .def("__init__",
             [](SharedLearner* self, std::shared_ptr<const Rule> rule, std::size_t n_arms,
                std::size_t width, std::vector<std::size_t> questions,
                const std::vector<ScopeTuple>& grams, std::vector<double> gaps, double ridge,
                std::int64_t forced_rounds, bool transitive, double explore, double labels,
                std::uint64_t seed, double half_life, std::size_t most_rows) {
                 require(n_arms >= 2 && n_arms <= kMaxArms && gaps.size() == n_arms * n_arms,
                         "2 to 15 arms");
                 require(questions.size() == n_arms || questions.size() == n_arms * (n_arms - 1) / 2,
                         "a question for each pair, or for each arm");
                 Plan plan;
                 plan.rule = std::move(rule);
                 plan.n_arms = n_arms;
                 plan.width = width;
                 plan.questions = std::move(questions);
                 for (const auto& [offset, dim, arm, from, linear] : grams) {
                     require(dim > 0 && offset + dim <= width && arm < n_arms && from <= arm &&
                                 linear <= dim,
                             "no such features");
                     plan.grams.push_back({offset, dim, arm, from, linear});
                 }
                 plan.gaps = std::move(gaps);
                 plan.ridge = ridge;
                 plan.forced_rounds = forced_rounds;
                 plan.transitive = transitive;
                 plan.explore = explore;
                 plan.labels = labels;
                 plan.seed = seed;
                 plan.rate = rate_of(half_life);
                 plan.most_rows = most_rows;
                 new (self) SharedLearner(Learner(std::move(plan)));
             },
             "rule"_a, nb::kw_only(), "n_arms"_a, "width"_a, "questions"_a, "grams"_a, "gaps"_a,
             "ridge"_a, "forced_rounds"_a, "transitive"_a, "explore"_a, "labels"_a, "seed"_a,
             "half_life"_a, "most_rows"_a)
        .def("decide", &decide, "x"_a.none(), "maps"_a.none())
        .def("decide_many", &decide_many, "rows"_a, "stops"_a.noconvert(),
             "rule_stops"_a.none().noconvert())
        .def("explore_many", &explore_many, "explored"_a.noconvert())
        .def("begin", &begin)
        .def("should_stop", &should_stop, "row"_a, "arm"_a, "trace"_a)
        .def("continue_draws",
             [](SharedLearner& shared, SharedLearner& other) {
                 shared.value.continue_draws(other.value);
             },
             "other"_a)
        .def("observe", &observe, "x"_a.none(), "maps"_a.none(), "n"_a, "rule_stop"_a,
             "codes"_a)
        .def("label", &label, "row"_a, "rule_stop"_a, "right"_a, "differ"_a, "request"_a)
        .def("run", &run, "rows"_a, "answers"_a, "reach"_a, "wrong"_a.none(),
             "stops"_a.noconvert(), "rule_stops"_a.noconvert(), "requests"_a.noconvert())
        .def("learn", &learn, "rows"_a, "answers"_a, "stops"_a, "rule_stops"_a,
             "requests"_a.none().noconvert())
        .def("evidence", &evidence, "trace"_a, "stop"_a, "exact"_a)
        .def("theta", &theta, "question"_a)
        .def("gram", &gram, "question"_a)
        .def("observations",
             [](SharedLearner& shared, std::size_t question) {
                 check_question(shared, question);
                 return shared.short_call([&] { return shared.value.observations(question); });
             },
             "question"_a)
        .def("save", &save)
        .def("restore", &restore, "saved"_a)
        .def_prop_ro("rounds", read(&Learner::rounds))
        .def_prop_ro("effective_rounds", read(&Learner::effective_rounds))
        .def_prop_ro("labels", read(&Learner::labels))
        .def_prop_ro("asked", read(&Learner::asked))
        .def_prop_ro("missing", read(&Learner::missing))
        .def_prop_ro("explore_rate", read(&Learner::explore_rate))
        .def_prop_ro("nbytes", read(&Learner::nbytes))
        .def_prop_ro("effort", &effort);
}

}  // namespace stopwise
