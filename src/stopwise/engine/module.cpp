// The binding, and the only file that knows Python.
//
// Threads may share a learner: a mutex gives every call its turn, and a thread that waits for it
// does not hold the interpreter. Long calls release the interpreter while they work.
#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <mutex>
#include <stdexcept>

#include "binding.h"
#include "counts.h"
#include "features.h"
#include "learner.h"

namespace stopwise {
namespace {

constexpr std::size_t kMaxArms = 15;  // outputs arrive as codes of four bits
// Multiplications from which a call is worth releasing the interpreter for.
constexpr double kLong = 6e6;

// A value that threads share. Every call of a method has it alone.
template <class T>
struct Shared {
    explicit Shared(T shared) : value(std::move(shared)) {}

    // Call ``go`` alone. A thread that waits for its turn does not hold the interpreter.
    template <class Go>
    auto short_call(const Go& go) {
        std::unique_lock<std::mutex> lock(mutex, std::try_to_lock);
        if (!lock.owns_lock()) {
            nb::gil_scoped_release others_run;
            lock.lock();
        }
        return go();
    }

    // The same for work that takes long: the interpreter is free from before to after it.
    template <class Go>
    auto long_call(const Go& go) {
        nb::gil_scoped_release others_run;  // taken back last, without holding the mutex
        std::lock_guard<std::mutex> lock(mutex);
        return go();
    }

    T value;
    std::mutex mutex;
    std::atomic<bool> slow{false};  // even a short call may take long: its history has grown
};

using SharedLearner = Shared<Learner>;
using Answers = Vector<const unsigned char>;

void update_slow(SharedLearner& shared) {
    const auto rows = static_cast<double>(shared.value.history().rows() + 1);
    const auto width = static_cast<double>(shared.value.plan().width);
    const auto questions = static_cast<double>(shared.value.plan().questions.size());
    shared.slow = rows * width * width * questions > kLong;
}

template <class Go>
void call(SharedLearner& shared, const Go& go) {
    shared.slow ? shared.long_call(go) : shared.short_call(go);
}

using ScopeTuple =
    std::tuple<std::size_t, std::size_t, std::size_t, std::size_t, std::size_t>;
using RequestTuple = std::tuple<double, double, double>;

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

// Write the features of a context to ``row``; without maps the context is the features. False if
// the context is invalid.
bool features_of(const Learner& learner, nb::handle context, const Monomials* maps, double* row) {
    const std::size_t width = learner.plan().width;
    const Doubles given(context);
    const double* const x = given.data(maps == nullptr ? width : maps->context_dim());
    if (x == nullptr) return false;
    if (maps != nullptr) return maps->width() == width && maps->fill(x, row) == 0;
    std::copy_n(x, width, row);
    return true;
}

// What a decision rested on: the numbers of every comparison, then the features, whose number may
// have changed since. In a forced round nothing is compared, and the upper value of the first pair is
// NaN as a sign of it.
class Note {
public:
    explicit Note(const Learner& learner)
        : compared_(sizeof(Noted) / sizeof(double) * learner.n_pairs()), numbers_(compared_ + learner.plan().width) {}
    Note(const Learner& learner, const nb::bytes& from) : Note(learner) {
        require(from.size() >= compared_ * sizeof(double), "a note of another learner");
        std::memcpy(numbers_.data(), from.data(),
                    std::min(from.size(), numbers_.size() * sizeof(double)));
    }
    double* row() { return numbers_.data() + compared_; }
    Noted* noted() { return reinterpret_cast<Noted*>(numbers_.data()); }
    // Nothing was compared: the round was forced, or labels have fixed the depth.
    bool empty() {
        return std::isnan(noted()[0].upper) || noted()[0].through == kFixedByLabels;
    }
    void mark_forced() { noted()[0].upper = std::nan(""); }
    nb::bytes bytes() { return nb::bytes(numbers_.data(), numbers_.size() * sizeof(double)); }

private:
    std::size_t compared_;
    std::vector<double> numbers_;
};

// The stop, that of the rule, the number of the decision, the rounds and labels seen before it, and
// the note; None if the context is invalid.
std::optional<std::tuple<std::size_t, std::size_t, std::int64_t, std::int64_t, nb::bytes>> decide(
    SharedLearner& shared, nb::handle context, const Monomials* maps) {
    Learner& learner = shared.value;
    Note note(learner);
    if (!features_of(learner, context, maps, note.row())) return std::nullopt;
    std::size_t stop = 0, rule_stop = 0;
    std::int64_t draw = 0, rounds = 0;
    call(shared, [&] {
        draw = learner.next_draw();
        rule_stop = learner.decide(note.row(), draw, note.noted());
        stop = learner.explores(draw) ? learner.plan().n_arms - 1 : rule_stop;
        rounds = learner.rounds() + learner.labels();
        if (learner.forced()) note.mark_forced();
    });
    return std::make_tuple(stop, rule_stop, draw, rounds, note.bytes());
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
    const auto last = static_cast<std::int64_t>(learner.plan().n_arms) - 1;
    const bool draws = rule_stops || learner.rule().draws();
    std::vector<Noted> noted(learner.n_pairs());
    shared.long_call([&] {
        for (std::size_t t = 0; t < n; ++t) {
            const std::int64_t draw = draws ? learner.next_draw() : 0;
            const auto rule_stop = static_cast<std::int64_t>(
                learner.decide(rows.data() + t * width, draw, noted.data()));
            stops.data()[t] = rule_stops && learner.explores(draw) ? last : rule_stop;
            if (rule_stops) rule_stops->data()[t] = rule_stop;
        }
    });
}

// Which of the next decisions go to the last arm at random.
void explore_many(SharedLearner& shared, const Vector<unsigned char>& explored) {
    Learner& learner = shared.value;
    shared.short_call([&] {
        for (std::size_t t = 0; t < explored.shape(0); ++t) {
            explored.data()[t] = learner.explores(learner.next_draw());
        }
    });
}

// The note of a round that is decided arm by arm, the number of its decision, and whether it goes to
// the last arm at random.
std::tuple<nb::bytes, std::int64_t, bool> begin(SharedLearner& shared) {
    Learner& learner = shared.value;
    Note note(learner);
    std::fill_n(note.noted(), learner.n_pairs(), kNotCompared);
    std::int64_t draw = 0;
    bool explored = false;
    shared.short_call([&] {
        draw = learner.next_draw();
        explored = learner.explores(draw);
        if (learner.forced()) note.mark_forced();
    });
    return std::make_tuple(note.bytes(), draw, explored);
}

std::pair<bool, nb::bytes> should_stop(SharedLearner& shared, const Numbers1& row,
                                       std::int64_t draw, const nb::bytes& before,
                                       std::size_t arm) {
    Learner& learner = shared.value;
    require(has_shape(row, learner.plan().width) && arm < learner.plan().n_arms - 1, "no such arm");
    Note note(learner, before);
    std::copy_n(row.data(), row.shape(0), note.row());
    const bool stops = shared.long_call(
        [&] { return learner.should_stop(note.row(), draw, note.noted(), arm); });
    return {stops, note.bytes()};
}

// ``codes`` packs four bits per arm, equal where the outputs are. Returns the label asked for, or
// None if the context is invalid.
std::optional<RequestTuple> observe(SharedLearner& shared, nb::handle context, const Monomials* maps, std::size_t n,
             std::size_t rule_stop, std::uint64_t codes) {
    Learner& learner = shared.value;
    require(n >= 1 && n <= learner.plan().n_arms, "arms");
    require(learner.plan().questions.size() == learner.n_pairs(), "a learner of pairs");
    std::vector<double> row(learner.plan().width);
    if (!features_of(learner, context, maps, row.data())) return std::nullopt;
    Request request;
    unsigned char answers[kMaxArms * (kMaxArms - 1) / 2] = {};
    for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t j = i + 1; j < n; ++j) {
            const std::uint64_t differ = (codes >> (4 * i) ^ codes >> (4 * j)) & 15;
            answers[learner.pair(i, j)] = differ != 0;
        }
    }
    call(shared, [&] {
        request = learner.observe(row.data(), n - 1, rule_stop, answers);
        update_slow(shared);
    });
    return RequestTuple(request.probability, request.explored, request.round);
}

void label(SharedLearner& shared, const Numbers1& row, std::size_t rule_stop, const Answers& right,
           const Answers& differ, RequestTuple request) {
    Learner& learner = shared.value;
    const std::size_t n = right.shape(0);
    require(has_shape(row, learner.plan().width) && n >= 1 && n <= learner.plan().n_arms &&
                has_shape(differ, learner.n_pairs()) && learner.rule().takes_labels(),
            "a round of another learner");
    shared.short_call([&] {
        learner.label(row.data(), n, rule_stop, right.data(), differ.data(),
                      {std::get<0>(request), std::get<1>(request), std::get<2>(request)});
    });
}

// Run recorded rounds in order. ``reach`` is the last arm whose answers are known (−1: none, decide
// only): the learner learns nothing from a deeper stop, unless the round ended there because an arm
// failed (−2 − the last arm known). Labels are those of ``wrong``: 0 or 1 per arm, 2 where unknown. The learner has the
// label of a round that it asks for; ``requests`` gets what it asked for, and NaN where it learned
// nothing.
void run(SharedLearner& shared, const Table<const double>& rows,
         const Table<const unsigned char>& answers, const Vector<const std::int64_t>& reach,
         const std::optional<Table<const unsigned char>>& wrong,
         const Vector<std::int64_t>& stops,
         const Vector<std::int64_t>& rule_stops, const Table<double>& requests) {
    Learner& learner = shared.value;
    const std::size_t n = rows.shape(0), n_arms = learner.plan().n_arms;
    const std::size_t pairs = learner.n_pairs(), questions = learner.plan().questions.size();
    require(has_shape(rows, n, learner.plan().width) && has_shape(answers, n, questions) &&
                has_shape(reach, n) && has_shape(stops, n) && has_shape(rule_stops, n) &&
                has_shape(requests, n, std::size_t{3}),
            "tables of other rounds");
    require(!wrong || (has_shape(*wrong, n, n_arms) && questions == pairs &&
                       learner.rule().takes_labels()),
            "labels");
    std::vector<Noted> noted(pairs);
    std::vector<unsigned char> right(n_arms);
    const auto last = static_cast<std::int64_t>(n_arms) - 1;
    const auto one_round = [&](std::size_t t) {
        const double* row = rows.data() + t * rows.shape(1);
        const unsigned char* revealed = answers.data() + t * questions;
        const std::int64_t draw = learner.next_draw();
        const std::size_t rule_stop = learner.decide(row, draw, noted.data());
        rule_stops.data()[t] = static_cast<std::int64_t>(rule_stop);
        std::int64_t stop = learner.explores(draw) ? last : rule_stops.data()[t];
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
        const Request asked = learner.observe(row, end, rule_stop, revealed);
        request[0] = asked.probability;
        request[1] = asked.explored;
        request[2] = asked.round;
        if (!wrong || asked.probability == 0.0) return;
        for (std::size_t arm = 0; arm <= end; ++arm) {
            const unsigned char is = wrong->data()[t * n_arms + arm];
            if (is > 1) return;
            right[arm] = is == 0;
        }
        learner.label(row, end + 1, rule_stop, right.data(), revealed, asked);
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
    const std::size_t n = rows.shape(0), questions = learner.plan().questions.size();
    const auto last = static_cast<std::int64_t>(learner.plan().n_arms) - 1;
    require(has_shape(rows, n, learner.plan().width) && has_shape(answers, n, questions) &&
                has_shape(stops, n) && has_shape(rule_stops, n) &&
                (!requests || has_shape(*requests, n, std::size_t{3})),
            "tables of other rounds");
    shared.long_call([&] {
        for (std::size_t t = 0; t < n; ++t) {
            const std::int64_t stop = std::min(stops.data()[t], last);
            if (stop < 0) continue;
            const std::int64_t rule_stop = std::max(rule_stops.data()[t], std::int64_t{0});
            const bool may_ask = requests && !std::isnan(requests->data()[3 * t]);
            const Request asked = learner.observe(
                rows.data() + t * rows.shape(1), static_cast<std::size_t>(stop),
                static_cast<std::size_t>(rule_stop), answers.data() + t * questions,
                may_ask);
            if (!may_ask) continue;
            requests->data()[3 * t] = asked.probability;
            requests->data()[3 * t + 1] = asked.explored;
            requests->data()[3 * t + 2] = asked.round;
        }
        update_slow(shared);
    });
}

std::optional<nb::bytes> evidence(SharedLearner& shared, const nb::bytes& before,
                                  std::int64_t draw, std::size_t stop) {
    Learner& learner = shared.value;
    Note note(learner, before);
    if (note.empty()) return before;
    const bool settled = shared.long_call(
        [&] { return learner.evidence(note.row(), draw, stop, note.noted()); });
    if (!settled) return std::nullopt;
    return note.bytes();
}

std::vector<Evidence> explain(SharedLearner& shared, const nb::bytes& before, std::size_t stop) {
    Note note(shared.value, before);
    if (note.empty()) return {};
    return shared.value.explain(note.noted(), stop);
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

void checked(const SharedLearner& shared, std::size_t question) {
    require(question < shared.value.plan().questions.size(), "no such question");
}

std::optional<NumpyNumbers> theta(SharedLearner& shared, std::size_t question) {
    checked(shared, question);
    std::vector<double> found = shared.long_call([&] { return shared.value.theta(question); });
    if (found.empty()) return std::nullopt;
    const std::size_t d = found.size();
    return numpy(std::move(found), {d});
}

std::pair<NumpyNumbers, NumpyNumbers> gram(SharedLearner& shared, std::size_t question) {
    checked(shared, question);
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

void bind_rules(nb::module_& m) {
    nb::class_<Ellipsoid>(m, "Ellipsoid")
        .def("__init__",
             [](Ellipsoid* self, double sigma, double kappa, double delta, double n_arms,
                double n_features) {
                 new (self) Ellipsoid{sigma, kappa, delta, n_arms, n_features};
             },
             "sigma"_a, "kappa"_a, "delta"_a, "n_arms"_a, "n_features"_a);
    nb::class_<Rule>(m, "Rule").def("radius", &Rule::radius, "observations"_a, "rounds"_a);
    nb::class_<UssPd, Rule>(m, "UssPd").def(nb::init<Ellipsoid>());
    nb::class_<UssPdRidge, Rule>(m, "UssPdRidge").def(nb::init<Ellipsoid, double, double>());
    nb::class_<Laplace, Rule>(m, "Laplace").def(nb::init<double>());
    nb::class_<Thompson, Laplace>(m, "Thompson").def(nb::init<double>());
    nb::class_<Anchor, Laplace>(m, "Anchor").def(nb::init<double>());
    nb::class_<Supervised, Rule>(m, "Supervised").def(nb::init<Ellipsoid>());
}

void bind_learner(nb::module_& m) {
    nb::class_<SharedLearner>(m, "Learner")
        .def("__init__",
             [](SharedLearner* self, std::shared_ptr<const Rule> rule, std::size_t n_arms,
                std::size_t width, std::vector<std::size_t> questions,
                const std::vector<ScopeTuple>& grams, std::vector<double> gaps, double ridge,
                std::int64_t forced_rounds, bool transitive, double explore, double labels,
                std::uint64_t seed, double half_life, std::size_t most_rows) {
                 require(n_arms >= 2 && n_arms <= kMaxArms, "2 to 15 arms");
                 require(questions.size() == n_arms || questions.size() == n_arms * (n_arms - 1) / 2,
                         "a question for each pair, or for each arm");
                 Plan plan{n_arms,        width,      std::move(questions), {}, std::move(gaps), ridge,
                           forced_rounds, transitive, explore,              labels,           seed,
                           rate_of(half_life), most_rows};
                 for (const auto& [offset, dim, arm, from, linear] : grams) {
                     require(dim > 0 && offset + dim <= width && arm < n_arms && from <= arm &&
                                 linear <= dim,
                             "no such features");
                     plan.grams.push_back({offset, dim, arm, from, linear});
                 }
                 new (self) SharedLearner(Learner(std::move(plan), std::move(rule)));
             },
             "rule"_a, nb::kw_only(), "n_arms"_a, "width"_a, "questions"_a, "grams"_a, "gaps"_a,
             "ridge"_a, "forced_rounds"_a, "transitive"_a, "explore"_a, "labels"_a, "seed"_a,
             "half_life"_a, "most_rows"_a)
        .def("decide", &decide, "x"_a.none(), "maps"_a.none())
        .def("decide_many", &decide_many, "rows"_a, "stops"_a.noconvert(),
             "rule_stops"_a.none().noconvert())
        .def("explore_many", &explore_many, "explored"_a.noconvert())
        .def("should_stop", &should_stop, "row"_a, "draw"_a, "note"_a, "arm"_a)
        .def("begin", &begin)
        .def("continue_draws",
             [](SharedLearner& shared, SharedLearner& other) {
                 shared.value.continue_draws(other.value);
             },
             "other"_a)
        .def("observe", &observe, "x"_a.none(), "maps"_a.none(), "n"_a, "rule_stop"_a,
             "codes"_a)
        .def("label", &label, "row"_a, "rule_stop"_a, "right"_a, "differ"_a, "request"_a)
        .def("run", &run, "rows"_a, "answers"_a, "reach"_a, "wrong"_a.none(), "stops"_a.noconvert(),
             "rule_stops"_a.noconvert(), "requests"_a.noconvert())
        .def("learn", &learn, "rows"_a, "answers"_a, "stops"_a, "rule_stops"_a,
             "requests"_a.none().noconvert())
        .def("evidence", &evidence, "note"_a, "draw"_a, "stop"_a)
        .def("explain", &explain, "note"_a, "stop"_a)
        .def("theta", &theta, "question"_a)
        .def("gram", &gram, "question"_a)
        .def("observations",
             [](SharedLearner& shared, std::size_t question) {
                 checked(shared, question);
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

// Of a map: offset, monomials, bound, limit, factors, center, scale.
using BlockTuple = std::tuple<std::size_t, std::vector<std::vector<std::size_t>>, double, double,
                              std::vector<double>, std::vector<double>, std::vector<double>>;

void bind_features(nb::module_& m) {
    nb::class_<Monomials>(m, "Monomials")
        .def("__init__",
             [](Monomials* self, std::size_t context_dim, std::size_t width,
                const std::vector<BlockTuple>& given) {
                 std::vector<MonomialBlock> blocks;
                 for (const auto& [offset, monomials, bound, limit, factors, center, scale] : given) {
                     blocks.push_back({offset, monomials, bound, limit, factors, center, scale});
                 }
                 new (self) Monomials(context_dim, width, std::move(blocks));
             },
             "context_dim"_a, "width"_a, "blocks"_a)
        .def("rows",
             [](const Monomials& maps, const Table<const double>& X, const Table<double>& out) {
                 require(X.shape(1) == maps.context_dim() && has_shape(out, X.shape(0), maps.width()),
                         "contexts of another length");
                 nb::gil_scoped_release others_run;
                 for (std::size_t t = 0; t < X.shape(0); ++t) {
                     const std::int64_t status = maps.fill(X.data() + t * maps.context_dim(),
                                                           out.data() + t * maps.width());
                     if (status != 0) return std::make_tuple(t, status);
                 }
                 return std::make_tuple(X.shape(0), std::int64_t{0});
             },
             "X"_a, "out"_a.noconvert());
}

// μ(φᵀθ) of every row and every column of ``thetas``, the same bits on every machine.
NumpyNumbers chances(const Table<const double>& rows, const Table<const double>& thetas) {
    const std::size_t n = rows.shape(0), d = rows.shape(1), columns = thetas.shape(1);
    require(thetas.shape(0) == d, "rows of another length");
    std::vector<double> found(n * columns, 0.0);
    for (std::size_t t = 0; t < n; ++t) {
        double* const logits = found.data() + t * columns;
        for (std::size_t c = 0; c < d; ++c) {
            const double x = rows.data()[t * d + c];
            for (std::size_t k = 0; k < columns; ++k) {
                logits[k] += x * thetas.data()[c * columns + k];
            }
        }
        for (std::size_t k = 0; k < columns; ++k) logits[k] = sigmoid(logits[k]);
    }
    return numpy(std::move(found), {n, columns});
}

// A number in [0, 1) for each of n rounds from ``first`` on.
NumpyNumbers draws(std::uint64_t seed, std::int64_t first, std::size_t n) {
    std::vector<double> numbers(n);
    for (std::size_t t = 0; t < n; ++t) {
        numbers[t] = draw_of(seed, first + static_cast<std::int64_t>(t), 0);
    }
    return numpy(std::move(numbers), {n});
}

using SharedCounts = Shared<PairCounts>;

void bind_counts(nb::module_& m) {
    nb::class_<SharedCounts>(m, "PairCounts")
        .def("__init__",
             [](SharedCounts* self, std::size_t n_arms, std::vector<double> gaps,
                std::uint64_t seed) {
                 require(n_arms >= 2 && gaps.size() == n_arms * n_arms, "gaps are (K, K)");
                 new (self) SharedCounts(PairCounts(n_arms, std::move(gaps), seed));
             },
             "n_arms"_a, "gaps"_a, "seed"_a)
        .def("decide",
             [](SharedCounts& shared, std::optional<double> a) {
                 std::vector<double> noted(2 * shared.value.n_pairs());
                 const std::size_t stop =
                     shared.short_call([&] { return shared.value.decide(a, noted.data()); });
                 return std::make_pair(
                     stop, nb::bytes(noted.data(), noted.size() * sizeof(double)));
             },
             "a"_a.none())
        .def("learn",
             [](SharedCounts& shared, std::size_t stop, const Answers& differ) {
                 require(has_shape(differ, shared.value.n_pairs()), "one value per pair");
                 shared.short_call([&] { shared.value.learn(stop, differ.data()); });
             },
             "stop"_a, "differ"_a)
        .def("run",
             [](SharedCounts& shared, std::optional<double> a,
                const Table<const unsigned char>& differ, const Vector<std::int64_t>& stops) {
                 PairCounts& counts = shared.value;
                 const std::size_t pairs = counts.n_pairs();
                 require(has_shape(differ, stops.shape(0), pairs), "tables of other rounds");
                 std::vector<double> noted(2 * pairs);
                 shared.long_call([&] {
                     for (std::size_t t = 0; t < stops.shape(0); ++t) {
                         const std::size_t stop = counts.decide(a, noted.data());
                         stops.data()[t] = static_cast<std::int64_t>(stop);
                         counts.learn(stop, differ.data() + t * pairs);
                     }
                 });
             },
             "a"_a.none(), "differ"_a, "stops"_a.noconvert())
        .def("state",
             [](SharedCounts& shared) {
                 return shared.short_call([&] {
                     const PairCounts& counts = shared.value;
                     return std::make_tuple(counts.rounds, counts.revealed, counts.disagreed,
                                            counts.random.state());
                 });
             })
        .def("restore",
             [](SharedCounts& shared, std::int64_t rounds, std::vector<std::int64_t> revealed,
                std::vector<std::int64_t> disagreed, std::array<std::uint64_t, 4> random) {
                 PairCounts& counts = shared.value;
                 require(revealed.size() == counts.n_arms() && disagreed.size() == counts.n_pairs(),
                         "counts of another cascade");
                 shared.short_call([&] {
                     counts.rounds = rounds;
                     counts.revealed = std::move(revealed);
                     counts.disagreed = std::move(disagreed);
                     counts.random.restore(random);
                 });
             },
             "rounds"_a, "revealed"_a, "disagreed"_a, "random"_a)
        .def_prop_ro("rounds", [](SharedCounts& shared) {
            return shared.short_call([&] { return shared.value.rounds; });
        });
}

}  // namespace
}  // namespace stopwise

NB_MODULE(native, m) {
    nb::set_leak_warnings(false);  // caches and modules may hold policies until the process ends
    nb::register_exception_translator([](const std::exception_ptr& p, void*) {
        try {
            std::rethrow_exception(p);
        } catch (const stopwise::BadArchive& error) {
            PyErr_SetString(PyExc_ValueError, error.what());
        }
    });
    stopwise::bind_rules(m);
    stopwise::bind_learner(m);
    stopwise::bind_features(m);
    stopwise::bind_counts(m);
    m.def("chances", &stopwise::chances, "rows"_a, "thetas"_a);
    m.def("log", &stopwise::log, "x"_a);
    m.def("draws", &stopwise::draws, "seed"_a, "first"_a, "n"_a);
    m.def("instructions", [] { return stopwise::kernels().name; });
}
