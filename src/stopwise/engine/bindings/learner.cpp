// Python bindings of the learner.
//
// Threads may share a learner. Waiting threads release the GIL, and long calls release it while
// they run.
#include "learner.h"

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

namespace stopwise {

void SharedLearner::update_slow() {
    constexpr double kSlowRound = 6e6;  // multiplications
    const Config& config = value.state().config();
    const auto rows = static_cast<double>(value.state().estimates().history().rows() + 1);
    const auto width = static_cast<double>(config.width);
    slow = rows * width * width * static_cast<double>(config.questions.size()) > kSlowRound;
}

namespace {

using Contexts = Table<const double>;
using Answers = Table<const unsigned char>;
using Counts = Vector<const std::int64_t>;
using Bytes = Vector<const unsigned char>;
using Stops = Vector<std::int64_t>;
using RequestTuple = std::tuple<double, double, std::int64_t>;
// Round, slot and coordinate of an invalid number, and whether it is finite.
using InvalidCoordinateTuple = std::tuple<std::size_t, std::size_t, std::size_t, bool>;
// i, j, gap, p̂, p̃, whether the gap won, gain, intermediate arm, share of labels received.
using EvidenceTuple =
    std::tuple<std::size_t, std::size_t, double, double, double, bool, double,
               std::optional<std::uint8_t>, double>;

// A contiguous buffer of doubles of a Python object. Faster than an ndarray, for calls made in
// every round.
class DoubleBuffer {
public:
    explicit DoubleBuffer(nb::handle object)
        : acquired_(PyObject_GetBuffer(object.ptr(), &view_, PyBUF_ND | PyBUF_FORMAT) == 0) {
        if (!acquired_) PyErr_Clear();
    }
    ~DoubleBuffer() {
        if (acquired_) PyBuffer_Release(&view_);
    }
    DoubleBuffer(const DoubleBuffer&) = delete;
    DoubleBuffer& operator=(const DoubleBuffer&) = delete;

    // The numbers; null unless the buffer has ``least`` to ``most`` doubles.
    const double* data(std::size_t least, std::size_t most) const {
        const bool doubles = acquired_ && view_.ndim == 1 && view_.format != nullptr &&
                             std::strcmp(view_.format, "d") == 0 &&
                             reinterpret_cast<std::uintptr_t>(view_.buf) % alignof(double) == 0;
        if (!doubles) return nullptr;
        const auto n = static_cast<std::size_t>(view_.shape[0]);
        return n >= least && n <= most ? static_cast<const double*>(view_.buf) : nullptr;
    }
    // The context of a round in which ``arms`` arms have answered; null if its length is wrong.
    const double* context(const FeatureMaps& maps, std::size_t arms) const {
        if (maps.revealed()) return data(maps.dim_after(arms), maps.context_dim());
        return data(maps.caller_dim(), maps.caller_dim());
    }

private:
    Py_buffer view_;
    bool acquired_;
};

// None if the context is invalid or not an array of doubles of the right length.
std::optional<Trace> decide(SharedLearner& shared, nb::handle context) {
    const DoubleBuffer buffer(context);
    const double* const numbers = buffer.context(*shared.maps, 0);
    if (numbers == nullptr || shared.maps->revealed()) return std::nullopt;
    Trace trace;
    const bool invalid =
        shared.call([&] { return shared.value.decide({numbers}, trace).has_value(); });
    if (invalid) return std::nullopt;
    return trace;
}

void check_contexts(const SharedLearner& shared, const Contexts& contexts) {
    require(contexts.shape(1) == shared.maps->caller_dim(),
            "contexts has the wrong number of columns");
}

// Write the stops of the policy and of the rule.
void decide_many(SharedLearner& shared, const Contexts& contexts, const Stops& stops,
                 const Stops& rule_stops) {
    check_contexts(shared, contexts);
    const std::size_t n = contexts.shape(0);
    require(has_shape(stops, n) && has_shape(rule_stops, n),
            "stops and rule_stops must have one value per round");
    Trace trace;
    shared.long_call([&] {
        for (std::size_t t = 0; t < n; ++t) {
            require(!shared.value.decide({contexts.data() + t * contexts.shape(1)}, trace),
                    "invalid context");
            stops.data()[t] = static_cast<std::int64_t>(trace.stop);
            rule_stops.data()[t] = static_cast<std::int64_t>(trace.rule_stop);
        }
    });
}

// Recorded rounds: contexts, an answer for each question, and the number of arms that answered.
struct RecordedRounds {
    RecordedRounds(const SharedLearner& shared, const Contexts& contexts, const Answers& answers,
           const Counts& answered)
        : contexts_(contexts), answers_(answers), answered_(answered),
          n_arms_(shared.maps->n_arms()) {
        check_contexts(shared, contexts);
        require(has_shape(answers, n(), shared.options.n_questions()) &&
                    has_shape(answered, n()),
                "answers and answered must have one row per round");
        for (std::size_t t = 0; t < n(); ++t) {
            require(answered.data()[t] >= 0 && arms(t) <= n_arms_,
                    "answered must be from 0 to the number of arms");
        }
    }
    std::size_t n() const { return contexts_.shape(0); }
    std::size_t arms(std::size_t t) const { return static_cast<std::size_t>(answered_.data()[t]); }
    const unsigned char* answers(std::size_t t) const {
        return answers_.data() + t * answers_.shape(1);
    }
    PartialContext context(std::size_t t) const {
        return {contexts_.data() + t * contexts_.shape(1), arms(t), answers(t)};
    }

private:
    const Contexts& contexts_;
    const Answers& answers_;
    const Counts& answered_;
    std::size_t n_arms_;
};

// Write the stop of the rule for each round, without learning or exploration.
void rule_stops(SharedLearner& shared, const Contexts& contexts, const Answers& answers,
                const Counts& answered, const Stops& stops) {
    const RecordedRounds record(shared, contexts, answers, answered);
    require(has_shape(stops, record.n()), "stops must have one value per round");
    shared.long_call([&] {
        for (std::size_t t = 0; t < record.n(); ++t) {
            stops.data()[t] = static_cast<std::int64_t>(shared.value.rule_stop(record.context(t)));
        }
    });
}

// Write which of the next decisions explore.
void explore_many(SharedLearner& shared, const Vector<unsigned char>& explored) {
    shared.short_call([&] {
        for (std::size_t t = 0; t < explored.shape(0); ++t) {
            explored.data()[t] = shared.value.explore();
        }
    });
}

// The first invalid coordinate of the contexts.
std::optional<InvalidCoordinateTuple> find_invalid(SharedLearner& shared, const Contexts& contexts,
                                                   const Answers& answers,
                                                   const Counts& answered) {
    const RecordedRounds record(shared, contexts, answers, answered);
    return shared.long_call([&]() -> std::optional<InvalidCoordinateTuple> {
        for (std::size_t t = 0; t < record.n(); ++t) {
            const auto invalid = shared.value.find_invalid(record.context(t));
            if (invalid) {
                return InvalidCoordinateTuple(t, invalid->slot, invalid->coordinate,
                                              invalid->finite);
            }
        }
        return std::nullopt;
    });
}

// ``codes`` has four bits per arm; equal codes mean equal outputs. None as in `decide`.
std::optional<Learned> observe(SharedLearner& shared, nb::handle context, std::size_t n,
                               std::size_t rule_stop, std::uint64_t codes) {
    const Options& options = shared.options;
    require(n >= 1 && n <= options.n_arms, "invalid number of arms");
    require(!options.rule->per_arm(), "the learner has no pairs");
    const DoubleBuffer buffer(context);
    const double* const numbers = buffer.context(*shared.maps, n);
    if (numbers == nullptr) return std::nullopt;
    unsigned char differ[kMaxArms * (kMaxArms - 1) / 2] = {};
    for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t j = i + 1; j < n; ++j) {
            differ[options.pair(i, j)] = ((codes >> (4 * i) ^ codes >> (4 * j)) & 15) != 0;
        }
    }
    const PartialContext partial{numbers, n, differ};
    return shared.call([&] {
        std::optional<Learned> learned =
            shared.value.observe(partial, {n - 1, std::min(rule_stop, n - 1), differ, true});
        shared.update_slow();
        return learned;
    });
}

// The same with the answers to the questions.
std::optional<Learned> observe_answers(SharedLearner& shared, const Numbers1& context,
                                       std::size_t stop, std::size_t rule_stop,
                                       const Bytes& answers) {
    const Options& options = shared.options;
    require(stop < options.n_arms && has_shape(answers, options.n_questions()),
            "stop or the number of answers is out of range");
    check_dim(*shared.maps, context.shape(0), stop + 1);
    const PartialContext partial{context.data(), stop + 1, answers.data()};
    return shared.long_call([&] {
        std::optional<Learned> learned =
            shared.value.observe(partial, {stop, std::min(rule_stop, stop), answers.data(), true});
        shared.update_slow();
        return learned;
    });
}

// False if the context is invalid.
bool label(SharedLearner& shared, const Numbers1& context, std::size_t rule_stop,
           const Bytes& right, const Bytes& differ, std::optional<RequestTuple> request) {
    const Options& options = shared.options;
    const std::size_t n = right.shape(0);
    require(n >= 1 && n <= options.n_arms && has_shape(differ, options.n_pairs()) &&
                options.rule->takes_labels(),
            "right or differ has the wrong length, or the rule does not learn from labels");
    check_dim(*shared.maps, context.shape(0), n);
    const PartialContext partial{context.data(), n, differ.data()};
    Label label{n, rule_stop, right.data(), differ.data(), std::nullopt};
    if (request) {
        const auto [probability, explored, round] = *request;
        label.request = LabelRequest{probability, explored, round};
    }
    return shared.call([&] { return shared.value.label(partial, label); });
}

// Run recorded rounds with valid contexts in order. The learner does not learn from a stop at an
// arm whose answer is unknown, unless the round ended early because an arm ``failed``. If the label
// of a round is requested, it is used where ``labelled``: which arms were ``right``.
std::vector<Change> run(SharedLearner& shared, const Contexts& contexts, const Answers& answers,
                        const Counts& answered, const Bytes& failed,
                        const std::optional<Answers>& right, const std::optional<Bytes>& labelled,
                        const Stops& stops) {
    Learner& learner = shared.value;
    const Options& options = shared.options;
    const RecordedRounds record(shared, contexts, answers, answered);
    require(has_shape(failed, record.n()) && has_shape(stops, record.n()),
            "failed and stops must have one value per round");
    require(right.has_value() == labelled.has_value(),
            "right and labelled must be passed together");
    if (right) {
        require(has_shape(*right, record.n(), options.n_arms) && has_shape(*labelled, record.n()) &&
                    options.rule->takes_labels(),
                "right or labelled has the wrong shape, or the rule does not learn from labels");
    }
    Trace trace;
    std::vector<Change> changes;
    const auto run_round = [&](std::size_t t) {
        const PartialContext partial = record.context(t);
        require(!learner.decide(partial, trace), "invalid context");
        stops.data()[t] = static_cast<std::int64_t>(trace.stop);
        const bool ended_early = failed.data()[t] != 0 && trace.stop >= partial.arms;
        const std::size_t arms = ended_early ? partial.arms : trace.stop + 1;
        if (arms == 0 || arms > partial.arms) return;
        const std::size_t stop = arms - 1;
        const Learned learned = learner.observe_decided(
            partial, trace, {stop, std::min(trace.rule_stop, stop), partial.differ, true});
        changes.insert(changes.end(), learned.changes.begin(), learned.changes.end());
        if (!learned.request || !right || labelled->data()[t] == 0) return;
        learner.label(partial, {arms, trace.rule_stop, right->data() + t * options.n_arms,
                                partial.differ, learned.request});
    };
    shared.long_call([&] {
        for (std::size_t t = 0; t < record.n(); ++t) run_round(t);
        shared.update_slow();
    });
    return changes;
}

// Learn from all answers of recorded rounds, without decisions or label requests.
std::vector<Change> learn(SharedLearner& shared, const Contexts& contexts, const Answers& answers,
                          const Counts& answered, const Counts& rule_stops) {
    const RecordedRounds record(shared, contexts, answers, answered);
    require(has_shape(rule_stops, record.n()), "rule_stops must have one value per round");
    std::vector<Change> changes;
    shared.long_call([&] {
        for (std::size_t t = 0; t < record.n(); ++t) {
            const PartialContext partial = record.context(t);
            if (partial.arms == 0) continue;
            const std::size_t stop = partial.arms - 1;
            require(rule_stops.data()[t] >= 0, "rule_stop must not be negative");
            const auto rule_stop = static_cast<std::size_t>(rule_stops.data()[t]);
            const auto learned = shared.value.observe(
                partial, {stop, std::min(rule_stop, stop), partial.differ, false});
            require(learned.has_value(), "invalid context");
            changes.insert(changes.end(), learned->changes.begin(), learned->changes.end());
        }
        shared.update_slow();
    });
    return changes;
}

// The comparisons of arms up to ``stop``; if ``exact``, with exact estimates, which are stored in
// the trace. None if an estimate does not converge.
std::optional<std::vector<EvidenceTuple>> evidence(SharedLearner& shared, Trace& trace,
                                                   std::size_t stop, bool exact) {
    const Options& options = shared.options;
    require(stop < options.n_arms, "stop is out of range");
    return shared.long_call([&]() -> std::optional<std::vector<EvidenceTuple>> {
        Learner& learner = shared.value;
        require(trace.comparisons.size() == options.n_pairs(),
                "the trace is from another learner");
        std::vector<EvidenceTuple> evidence;
        if (trace.reason != Reason::rule) return evidence;
        if (exact && trace.revision == learner.state().revision()) {  // not learned since
            require(trace.row.size() == learner.maps().width(),
                    "the trace is from another learner");
            if (!learner.exact_evidence(stop, trace)) return std::nullopt;
        }
        for (std::size_t i = 0; i <= stop; ++i) {
            for (std::size_t j = i + 1; j < options.n_arms; ++j) {
                const std::optional<Comparison>& comparison = trace.comparisons[options.pair(i, j)];
                if (!comparison) continue;
                evidence.emplace_back(i, j, options.gap(i, j),
                                      options.rule->as_probability(comparison->estimate),
                                      options.rule->as_probability(comparison->upper),
                                      comparison->won, comparison->gain, comparison->through,
                                      comparison->response);
            }
        }
        return evidence;
    });
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
        shared.update_slow();
    });
}

void check_question(const SharedLearner& shared, std::size_t question) {
    require(question < shared.options.n_questions(), "question is out of range");
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

double observations(SharedLearner& shared, std::size_t question) {
    check_question(shared, question);
    return shared.short_call(
        [&] { return shared.value.state().estimates().observations(question); });
}

double radius(SharedLearner& shared, std::size_t question) {
    check_question(shared, question);
    return shared.short_call([&] { return shared.value.state().estimates().radius(question); });
}

std::map<std::string, std::int64_t> effort(SharedLearner& shared) {
    return shared.short_call([&]() -> std::map<std::string, std::int64_t> {
        const Estimates& estimates = shared.value.state().estimates();
        const Effort& effort = estimates.effort();
        return {{"passes", effort.passes},
                {"hessians", effort.hessians},
                {"rows_visited", effort.rows_visited},
                {"settled", effort.settled},
                {"rows_stored", static_cast<std::int64_t>(estimates.history().rows())}};
    });
}

// The number of fits, and the maps.
std::pair<std::int64_t, FeatureMaps> fitted_maps(SharedLearner& shared) {
    return shared.short_call(
        [&] { return std::make_pair(shared.value.fits(), shared.value.maps()); });
}

// A locked call of a function of the learner.
template <class Function>
auto locked_read(Function function) {
    return [function](SharedLearner& shared) {
        return shared.short_call([&] { return function(shared.value); });
    };
}

void create(SharedLearner* self, std::shared_ptr<const Rule> rule,
            std::shared_ptr<const FeatureMaps> maps, std::vector<double> gaps,
            std::optional<double> ridge, std::optional<std::int64_t> forced_rounds, bool transitive,
            double explore, double labels, std::uint64_t seed, std::optional<double> half_life,
            std::optional<std::size_t> most_rows) {
    const std::size_t n_arms = maps->n_arms();
    require(n_arms >= 2 && n_arms <= kMaxArms && gaps.size() == n_arms * n_arms,
            "the number of arms must be from 2 to 15, and gaps must have shape (K, K)");
    require(!rule->per_arm() ||
                (maps->slots() == 1 && !maps->self_scaling() && !maps->revealed()),
            "a rule with one model per arm requires one feature map that is not self-scaling");
    const double rate = rate_of(half_life.value_or(0.0));
    new (self) SharedLearner(Options{std::move(rule), n_arms, std::move(gaps), ridge, forced_rounds,
                                     transitive, explore, labels, seed, rate, most_rows},
                             std::move(maps));
}

}  // namespace

void bind_learner(nb::module_& m) {
    bind_trace(m);
    nb::class_<SharedLearner>(m, "Learner")
        .def("__init__", &create, "rule"_a, "maps"_a, nb::kw_only(), "gaps"_a, "ridge"_a.none(),
             "forced_rounds"_a.none(), "transitive"_a, "explore"_a, "labels"_a, "seed"_a,
             "half_life"_a.none(), "most_rows"_a.none())
        .def("decide", &decide, "x"_a.none())
        .def("decide_many", &decide_many, "contexts"_a, "stops"_a.noconvert(),
             "rule_stops"_a.noconvert())
        .def("rule_stops", &rule_stops, "contexts"_a, "answers"_a, "answered"_a,
             "stops"_a.noconvert())
        .def("explore_many", &explore_many, "explored"_a.noconvert())
        .def("find_invalid", &find_invalid, "contexts"_a, "answers"_a, "answered"_a)
        .def("observe", &observe, "x"_a.none(), "n"_a, "rule_stop"_a, "codes"_a)
        .def("observe_answers", &observe_answers, "context"_a, "stop"_a, "rule_stop"_a,
             "answers"_a)
        .def("label", &label, "context"_a, "rule_stop"_a, "right"_a, "differ"_a,
             "request"_a.none())
        .def("run", &run, "contexts"_a, "answers"_a, "answered"_a, "failed"_a, "right"_a.none(),
             "labelled"_a.none(), "stops"_a.noconvert())
        .def("learn", &learn, "contexts"_a, "answers"_a, "answered"_a, "rule_stops"_a)
        .def("watch", locked_read([](Learner& learner) { learner.watch(); }))
        .def("evidence", &evidence, "trace"_a, "stop"_a, "exact"_a)
        .def("theta", &theta, "question"_a)
        .def("gram", &gram, "question"_a)
        .def("observations", &observations, "question"_a)
        .def("radius", &radius, "question"_a)
        .def("save", &save)
        .def("restore", &restore, "saved"_a)
        .def("fitted_maps", &fitted_maps)
        .def_prop_ro("rounds", locked_read([](const Learner& learner) { return learner.rounds(); }))
        .def_prop_ro("labels", locked_read([](const Learner& learner) {
                         return learner.state().labels().learned();
                     }))
        .def_prop_ro("requested", locked_read([](const Learner& learner) {
                         return learner.state().labels().requested();
                     }))
        .def_prop_ro("missing", locked_read([](const Learner& learner) {
                         return learner.state().labels().missing();
                     }))
        .def_prop_ro("fixed_depth", locked_read([](const Learner& learner) {
                         return learner.state().labels().fixed_depth();
                     }))
        .def_prop_ro("fits", locked_read([](const Learner& learner) { return learner.fits(); }))
        .def_prop_ro("nbytes", locked_read([](const Learner& learner) { return learner.nbytes(); }))
        .def_prop_ro("effort", &effort);
    bind_round(m);
}

}  // namespace stopwise
