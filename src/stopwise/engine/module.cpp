// The binding, and the only file that knows Python.
//
// A learner may be shared by threads: every call takes its turn by a mutex, and whoever waits for
// it does not hold the interpreter. Long calls let go of the interpreter while they work.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <mutex>
#include <stdexcept>

#include "counts.h"
#include "features.h"
#include "learner.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace stopwise {
namespace {

template <class T>
using Vector = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Table = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using NumpyNumbers = nb::ndarray<nb::numpy, double>;

constexpr std::size_t kMaxArms = 15;  // outputs travel as codes of four bits

// Work of a call, in multiplications, from which it takes long enough for other threads to go on meanwhile.
constexpr double kLong = 6e6;

template <class T>
struct Shared {
    explicit Shared(T shared) : value(std::move(shared)) {}
    T value;
    std::mutex mutex;
    std::atomic<bool> slow{false};  // a short call may take long: its history has grown
};

// One turn at a shared value, for a short call.
template <class T>
class Turn {
public:
    explicit Turn(Shared<T>& shared) : lock_(shared.mutex, std::try_to_lock) {
        if (!lock_.owns_lock()) {
            nb::gil_scoped_release let_others_run;
            lock_.lock();
        }
    }

private:
    std::unique_lock<std::mutex> lock_;
};

// One turn for a long call: the interpreter is free from before to after it.
template <class T>
class LongTurn {
public:
    explicit LongTurn(Shared<T>& shared) : lock_(shared.mutex) {}

private:
    nb::gil_scoped_release let_others_run_;  // first in, last out: never waits while holding a turn
    std::lock_guard<std::mutex> lock_;
};

void require(bool fits, const char* what) {
    if (!fits) throw std::invalid_argument(what);
}

NumpyNumbers numpy(std::vector<double> values, std::initializer_list<std::size_t> shape) {
    auto* kept = new std::vector<double>(std::move(values));
    nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<double>*>(p); });
    return NumpyNumbers(kept->data(), shape, owner);
}

using SharedLearner = Shared<Learner>;
using Numbers1 = Vector<const double>;
using Answers = Vector<const unsigned char>;

void note_size(SharedLearner& shared) {
    const auto rows = static_cast<double>(shared.value.history().rows() + 1);
    const auto width = static_cast<double>(shared.value.plan().width);
    const auto questions = static_cast<double>(shared.value.plan().questions.size());
    shared.slow = rows * width * width * questions > kLong;
}

// Call ``go`` in a turn: a long one if it may take long.
template <class Go>
void in_turn(SharedLearner& shared, const Go& go) {
    if (shared.slow) {
        LongTurn turn(shared);
        go();
    } else {
        Turn turn(shared);
        go();
    }
}

using QuestionTuple = std::tuple<std::size_t, std::size_t, std::size_t, std::size_t>;

Plan make_plan(std::size_t n_arms, std::size_t width, const std::vector<QuestionTuple>& questions,
               const std::vector<QuestionTuple>& grams, std::vector<double> gaps, double ridge,
               std::int64_t forced_rounds, std::size_t weight) {
    Plan plan{n_arms, width, {}, {}, std::move(gaps), ridge, forced_rounds, weight};
    require(n_arms >= 2 && n_arms <= kMaxArms, "2 to 15 arms");
    require(plan.gaps.size() == n_arms * n_arms, "gaps are (n_arms, n_arms)");
    require(questions.size() == n_arms || questions.size() == n_arms * (n_arms - 1) / 2,
            "a question for each pair, or for each arm");
    require(!grams.empty() && ridge > 0.0 && weight >= 1, "an empty plan");
    for (const auto& [offset, dim, arm, stage] : grams) {
        require(dim > 0 && offset <= width && dim <= width - offset && arm < n_arms,
                "features beyond the row");
        plan.grams.push_back({offset, dim, arm, stage});
    }
    for (const auto& [offset, dim, arm, gram] : questions) {
        require(gram < grams.size() && plan.grams[gram].offset == offset &&
                    plan.grams[gram].dim == dim && plan.grams[gram].arm == arm,
                "a question and its gram differ");
        plan.questions.push_back({offset, dim, arm, gram});
    }
    return plan;
}

// A Python object as doubles one after another, if that is what it holds. Cheaper than an ndarray,
// for the calls that are made every round.
class Doubles {
public:
    explicit Doubles(nb::handle object) {
        if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_ND | PyBUF_FORMAT) != 0) {
            PyErr_Clear();
            return;
        }
        held_ = true;
        given_ = view_.ndim == 1 && view_.format != nullptr && view_.format[0] == 'd' &&
                 view_.format[1] == '\0' && reinterpret_cast<std::uintptr_t>(view_.buf) % 8 == 0;
    }
    ~Doubles() {
        if (held_) PyBuffer_Release(&view_);
    }
    Doubles(const Doubles&) = delete;
    Doubles& operator=(const Doubles&) = delete;
    explicit operator bool() const { return given_; }
    std::size_t size() const { return static_cast<std::size_t>(view_.shape[0]); }
    const double* data() const { return static_cast<const double*>(view_.buf); }

private:
    Py_buffer view_;
    bool held_ = false, given_ = false;
};

// Room for a row of doubles: on the stack, if it is a short one.
class Row {
public:
    explicit Row(std::size_t n) : large_(n > kSmall ? n : 0) {}
    double* data() { return large_.empty() ? small_ : large_.data(); }

private:
    static constexpr std::size_t kSmall = 256;
    double small_[kSmall];
    std::vector<double> large_;
};

// Write the features of a context to ``row``; without maps they are given as they are. False if
// the context is not as it should be.
bool features_of(const Learner& learner, const Doubles& x, const Monomials* maps, double* row) {
    const std::size_t width = learner.plan().width;
    if (!x || x.size() != (maps == nullptr ? width : maps->context_dim())) return false;
    if (maps == nullptr) {
        std::copy_n(x.data(), width, row);
        return true;
    }
    return maps->width() == width && maps->fill(x.data(), row) == 0;
}

const double* draws_of(const Learner& learner, const std::optional<Numbers1>& noise) {
    if (!noise) return nullptr;
    require(noise->shape(0) == learner.n_pairs(), "one draw a pair");
    return noise->data();
}

// A note is what a decision rested on: the features, then the numbers of every comparison. In a
// forced round nothing is compared, and the upper value of the first pair is NaN to say so.
std::size_t note_length(const Learner& learner) {
    return learner.plan().width + 3 * learner.n_pairs();
}

Noted* noted_in(const Learner& learner, double* note) {
    return reinterpret_cast<Noted*>(note + learner.plan().width);
}

bool was_forced(const Learner& learner, double* note) {
    return std::isnan(noted_in(learner, note)[0].upper);
}

nb::bytes as_bytes(const double* numbers, std::size_t n) {
    return nb::bytes(numbers, n * sizeof(double));
}

// Copy a note that Python holds.
void read_note(const Learner& learner, const nb::bytes& from, double* note) {
    require(from.size() == note_length(learner) * sizeof(double), "a note of another learner");
    std::memcpy(note, from.data(), from.size());
}

// The stop, the rounds and labels seen before it, and the note; None if the context is not as it should be.
nb::object decide(SharedLearner& shared, nb::handle context, const Monomials* maps,
                  const std::optional<Numbers1>& noise) {
    Learner& learner = shared.value;
    const Doubles x(context);
    Row note(note_length(learner));
    if (!features_of(learner, x, maps, note.data())) return nb::none();
    const double* draws = draws_of(learner, noise);
    Noted* const noted = noted_in(learner, note.data());
    std::size_t stop = 0;
    std::int64_t rounds = 0;
    const auto answer = [&] {
        stop = learner.decide(note.data(), draws, noted);
        rounds = learner.rounds() + learner.labels();
        if (learner.forced()) noted[0].upper = std::nan("");
    };
    in_turn(shared, answer);
    return nb::make_tuple(stop, rounds, as_bytes(note.data(), note_length(learner)));
}

nb::bytes begin(SharedLearner& shared) {
    const Learner& learner = shared.value;
    Row note(note_length(learner));
    std::fill_n(note.data(), note_length(learner), 0.0);
    Noted* const noted = noted_in(learner, note.data());
    for (std::size_t k = 0; k < learner.n_pairs(); ++k) noted[k].estimate = std::nan("");
    {
        Turn turn(shared);
        if (learner.forced()) noted[0].upper = std::nan("");
    }
    return as_bytes(note.data(), note_length(learner));
}

nb::tuple should_stop(SharedLearner& shared, const Numbers1& row,
                      const std::optional<Numbers1>& noise, const nb::bytes& before,
                      std::size_t arm) {
    Learner& learner = shared.value;
    const std::size_t width = learner.plan().width;
    require(row.shape(0) == width && arm < learner.plan().n_arms - 1, "no such arm");
    Row note(note_length(learner));
    read_note(learner, before, note.data());
    std::copy_n(row.data(), width, note.data());
    const double* draws = draws_of(learner, noise);
    bool stops = false;
    {
        LongTurn turn(shared);
        stops = learner.should_stop(note.data(), draws, noted_in(learner, note.data()), arm);
    }
    return nb::make_tuple(stops, as_bytes(note.data(), note_length(learner)));
}

void decide_many(SharedLearner& shared, const Table<const double>& rows,
                 const std::optional<Table<const double>>& noise,
                 const Vector<std::int64_t>& stops) {
    Learner& learner = shared.value;
    require(rows.shape(1) == learner.plan().width && stops.shape(0) == rows.shape(0), "rows");
    require(!noise || (noise->shape(0) == rows.shape(0) && noise->shape(1) == learner.n_pairs()),
            "a row of noise for each decision");
    std::vector<Noted> noted(learner.n_pairs());
    LongTurn turn(shared);
    for (std::size_t t = 0; t < rows.shape(0); ++t) {
        const double* draws = noise ? noise->data() + t * learner.n_pairs() : nullptr;
        const double* row = rows.data() + t * rows.shape(1);
        stops.data()[t] = static_cast<std::int64_t>(learner.decide(row, draws, noted.data()));
    }
}

// ``codes`` packs four bits an arm, equal where the outputs are. False if the context is not as it
// should be.
bool observe(SharedLearner& shared, nb::handle context, const Monomials* maps, std::size_t n,
             std::size_t rule_stop, std::uint64_t codes) {
    Learner& learner = shared.value;
    require(n >= 1 && n <= learner.plan().n_arms, "arms");
    require(learner.plan().questions.size() == learner.n_pairs(), "a learner of pairs");
    const Doubles x(context);
    Row row(learner.plan().width);
    if (!features_of(learner, x, maps, row.data())) return false;
    unsigned char answers[kMaxArms * (kMaxArms - 1) / 2];
    for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t j = i + 1; j < n; ++j) {
            const std::uint64_t differ = (codes >> (4 * i) ^ codes >> (4 * j)) & 15;
            answers[learner.pair(i, j)] = differ != 0;
        }
    }
    in_turn(shared, [&] {
        learner.observe(row.data(), n - 1, rule_stop, answers);
        note_size(shared);
    });
    return true;
}

void observe_answers(SharedLearner& shared, const Numbers1& row, std::size_t stop,
                     std::size_t rule_stop, const Answers& answers) {
    Learner& learner = shared.value;
    require(row.shape(0) == learner.plan().width && stop < learner.plan().n_arms &&
                answers.shape(0) == learner.plan().questions.size(),
            "a round of another learner");
    in_turn(shared, [&] {
        learner.observe(row.data(), stop, rule_stop, answers.data());
        note_size(shared);
    });
}

void label(SharedLearner& shared, const Numbers1& row, std::size_t rule_stop, const Answers& right,
           const Answers& differ) {
    Learner& learner = shared.value;
    require(row.shape(0) == learner.plan().width && right.shape(0) <= learner.plan().n_arms &&
                differ.shape(0) == learner.n_pairs() && learner.rule().takes_labels(),
            "a round of another learner");
    Turn turn(shared);
    learner.label(row.data(), right.shape(0), rule_stop, right.data(), differ.data());
}

// Play rounds in order. ``reach`` is the last arm whose answers are known: a deeper stop teaches
// nothing, unless the round ended there because an arm failed (−2 − the last arm known). ``sent``
// has bit 1 for rounds that go to the last arm by chance, bit 2 for those whose label is seen when
// they have ended: ``wrong`` has 0 or 1 for each arm, 2 where that is not known.
void run(SharedLearner& shared, const Table<const double>& rows,
         const Table<const unsigned char>& answers, const Vector<const std::int64_t>& reach,
         const Answers& sent, const std::optional<Table<const double>>& noise,
         const std::optional<Table<const unsigned char>>& wrong, const Vector<std::int64_t>& stops,
         const Vector<std::int64_t>& rule_stops) {
    Learner& learner = shared.value;
    const std::size_t n = rows.shape(0), n_arms = learner.plan().n_arms;
    const std::size_t questions = learner.plan().questions.size();
    require(rows.shape(1) == learner.plan().width && answers.shape(0) == n &&
                answers.shape(1) == questions && reach.shape(0) == n && sent.shape(0) == n &&
                stops.shape(0) == n && rule_stops.shape(0) == n,
            "tables of other rounds");
    require(!noise || (noise->shape(0) == n && noise->shape(1) == learner.n_pairs()), "noise");
    require(!wrong || (wrong->shape(0) == n && wrong->shape(1) == n_arms &&
                       questions == learner.n_pairs() && learner.rule().takes_labels()),
            "labels");
    std::vector<Noted> noted(learner.n_pairs());
    std::vector<unsigned char> right(n_arms);
    LongTurn turn(shared);
    const auto last = static_cast<std::int64_t>(n_arms) - 1;
    for (std::size_t t = 0; t < n; ++t) {
        const double* row = rows.data() + t * rows.shape(1);
        const unsigned char* told = answers.data() + t * questions;
        const double* draws = noise ? noise->data() + t * learner.n_pairs() : nullptr;
        const std::size_t rule_stop = learner.decide(row, draws, noted.data());
        rule_stops.data()[t] = static_cast<std::int64_t>(rule_stop);
        std::int64_t stop = (sent.data()[t] & 1) != 0 ? last : static_cast<std::int64_t>(rule_stop);
        stops.data()[t] = stop;
        std::int64_t known = std::min(reach.data()[t], last);
        if (known < -1) {  // a failed arm ends the round where the answers end
            known = std::min(-2 - known, last);
            stop = std::min(stop, known);
        }
        if (stop < 0 || stop > known) continue;
        const auto end = static_cast<std::size_t>(stop);
        learner.observe(row, end, rule_stop, told);
        if (!wrong || (sent.data()[t] & 2) == 0) continue;
        bool labelled = true;
        for (std::size_t arm = 0; arm <= end; ++arm) {
            const unsigned char is = wrong->data()[t * n_arms + arm];
            labelled = labelled && is < 2;
            right[arm] = is == 0;
        }
        if (labelled) learner.label(row, end + 1, rule_stop, right.data(), told);
    }
    note_size(shared);
}

// Learn from rounds that ended at ``stops`` (−1: teaches nothing), deciding nothing.
void learn(SharedLearner& shared, const Table<const double>& rows,
           const Table<const unsigned char>& answers, const Vector<const std::int64_t>& stops,
           const Vector<const std::int64_t>& rule_stops) {
    Learner& learner = shared.value;
    const std::size_t n = rows.shape(0), questions = learner.plan().questions.size();
    const auto n_arms = static_cast<std::int64_t>(learner.plan().n_arms);
    require(rows.shape(1) == learner.plan().width && answers.shape(0) == n &&
                answers.shape(1) == questions && stops.shape(0) == n && rule_stops.shape(0) == n,
            "tables of other rounds");
    LongTurn turn(shared);
    for (std::size_t t = 0; t < n; ++t) {
        const std::int64_t stop = std::min(stops.data()[t], n_arms - 1);
        if (stop < 0) continue;
        const std::int64_t rule_stop = std::max(rule_stops.data()[t], std::int64_t{0});
        learner.observe(rows.data() + t * rows.shape(1), static_cast<std::size_t>(stop),
                        static_cast<std::size_t>(rule_stop), answers.data() + t * questions);
    }
    note_size(shared);
}

nb::object evidence(SharedLearner& shared, const nb::bytes& before,
                    const std::optional<Numbers1>& noise, std::size_t stop) {
    const Learner& learner = shared.value;
    Row note(note_length(learner));
    read_note(learner, before, note.data());
    if (was_forced(learner, note.data())) return before;
    const double* draws = draws_of(learner, noise);
    bool settled = false;
    {
        LongTurn turn(shared);
        settled = learner.evidence(note.data(), draws, stop, noted_in(learner, note.data()));
    }
    if (!settled) return nb::none();
    return as_bytes(note.data(), note_length(learner));
}

nb::list explain(SharedLearner& shared, const nb::bytes& before, std::size_t stop) {
    const Learner& learner = shared.value;
    Row note(note_length(learner));
    read_note(learner, before, note.data());
    const Noted* const noted = noted_in(learner, note.data());
    nb::list found;
    if (was_forced(learner, note.data())) return found;
    for (const Evidence& e : learner.explain(noted, stop)) {
        found.append(
            nb::make_tuple(e.first, e.second, e.gap, e.estimate, e.upper, e.gap_won, e.harm));
    }
    return found;
}

nb::bytes save(SharedLearner& shared) {
    std::vector<unsigned char> bytes;
    {
        LongTurn turn(shared);
        bytes = shared.value.save();
    }
    return nb::bytes(bytes.data(), bytes.size());
}

void restore(SharedLearner& shared, nb::bytes bytes) {
    const auto* data = static_cast<const unsigned char*>(bytes.data());
    const std::size_t size = bytes.size();
    LongTurn turn(shared);
    shared.value.restore(data, size);
    note_size(shared);
}

std::optional<NumpyNumbers> theta(SharedLearner& shared, std::size_t question) {
    require(question < shared.value.plan().questions.size(), "no such question");
    std::vector<double> found;
    {
        LongTurn turn(shared);
        found = shared.value.theta(question);
    }
    if (found.empty()) return std::nullopt;
    const std::size_t d = found.size();
    return numpy(std::move(found), {d});
}

nb::tuple gram(SharedLearner& shared, std::size_t question) {
    require(question < shared.value.plan().questions.size(), "no such question");
    std::vector<double> matrix, inverse;
    {
        LongTurn turn(shared);
        matrix = shared.value.gram(question).matrix();
        inverse = shared.value.gram(question).inverse();
    }
    const std::size_t d = shared.value.plan().questions[question].dim;
    return nb::make_tuple(numpy(std::move(matrix), {d, d}), numpy(std::move(inverse), {d, d}));
}

void bind_rules(nb::module_& m) {
    nb::class_<Ellipsoid>(m, "Ellipsoid")
        .def("__init__",
             [](Ellipsoid* self, double sigma, double kappa, double delta, double n_arms,
                double n_features) {
                 new (self) Ellipsoid{sigma, kappa, delta, n_arms, n_features};
             },
             "sigma"_a, "kappa"_a, "delta"_a, "n_arms"_a, "n_features"_a)
        .def("alpha", &Ellipsoid::alpha, "n"_a)
        .def("beta", &Ellipsoid::beta, "n"_a, "lam"_a, "S"_a);
    nb::class_<Rule>(m, "Rule");
    nb::class_<UssPd, Rule>(m, "UssPd").def(nb::init<Ellipsoid>());
    nb::class_<UssPdRidge, Rule>(m, "UssPdRidge").def(nb::init<Ellipsoid, double, double>());
    nb::class_<Thompson, Rule>(m, "Thompson").def(nb::init<double>());
    nb::class_<Supervised, Rule>(m, "Supervised").def(nb::init<Ellipsoid>());
}

void bind_learner(nb::module_& m) {
    nb::class_<SharedLearner>(m, "Learner")
        .def("__init__",
             [](SharedLearner* self, const Rule& rule, std::size_t n_arms, std::size_t width,
                const std::vector<QuestionTuple>& questions,
                const std::vector<QuestionTuple>& grams, std::vector<double> gaps, double ridge,
                std::int64_t forced_rounds, std::size_t weight) {
                 new (self) SharedLearner(
                     Learner(make_plan(n_arms, width, questions, grams, std::move(gaps), ridge,
                                       forced_rounds, weight),
                             rule.copy()));
             },
             "rule"_a, nb::kw_only(), "n_arms"_a, "width"_a, "questions"_a, "grams"_a, "gaps"_a,
             "ridge"_a, "forced_rounds"_a, "weight"_a)
        .def("decide", &decide, "x"_a.none(), "maps"_a.none(), "noise"_a.none())
        .def("should_stop", &should_stop, "row"_a, "noise"_a.none(), "note"_a, "arm"_a)
        .def("begin", &begin)
        .def("decide_many", &decide_many, "rows"_a, "noise"_a.none(), "stops"_a.noconvert())
        .def("observe", &observe, "x"_a.none(), "maps"_a.none(), "n"_a, "rule_stop"_a,
             "codes"_a)
        .def("observe_answers", &observe_answers, "row"_a, "stop"_a, "rule_stop"_a, "answers"_a)
        .def("label", &label, "row"_a, "rule_stop"_a, "right"_a, "differ"_a)
        .def("run", &run, "rows"_a, "answers"_a, "reach"_a, "sent"_a, "noise"_a.none(),
             "wrong"_a.none(), "stops"_a.noconvert(), "rule_stops"_a.noconvert())
        .def("learn", &learn, "rows"_a, "answers"_a, "stops"_a, "rule_stops"_a)
        .def("evidence", &evidence, "note"_a, "noise"_a.none(), "stop"_a)
        .def("explain", &explain, "note"_a, "stop"_a)
        .def("theta", &theta, "question"_a)
        .def("gram", &gram, "question"_a)
        .def("observations",
             [](SharedLearner& shared, std::size_t question) {
                 require(question < shared.value.plan().questions.size(), "no such question");
                 Turn turn(shared);
                 return shared.value.observations(question);
             },
             "question"_a)
        .def("save", &save)
        .def("restore", &restore, "saved"_a)
        .def_prop_ro("rounds",
                     [](SharedLearner& shared) {
                         Turn turn(shared);
                         return shared.value.rounds();
                     })
        .def_prop_ro("labels",
                     [](SharedLearner& shared) {
                         Turn turn(shared);
                         return shared.value.labels();
                     })
        .def_prop_ro("nbytes",
                     [](SharedLearner& shared) {
                         Turn turn(shared);
                         return shared.value.nbytes();
                     })
        .def_prop_ro("effort", [](SharedLearner& shared) {
            Effort effort;
            std::size_t rows = 0;
            {
                Turn turn(shared);
                effort = shared.value.effort();
                rows = shared.value.history().rows();
            }
            nb::dict found;
            found["passes"] = effort.passes;
            found["hessians"] = effort.hessians;
            found["rows_visited"] = effort.rows_visited;
            found["rows_kept"] = rows;
            return found;
        });
}

using BlockTuple = std::tuple<std::size_t, std::vector<std::vector<std::size_t>>, double, double,
                              double, std::vector<double>, std::vector<double>>;

Monomials make_maps(std::size_t context_dim, std::size_t width,
                    const std::vector<BlockTuple>& given) {
    std::vector<MonomialBlock> blocks;
    for (const auto& [offset, monomials, bound, limit, factor, center, scale] : given) {
        blocks.push_back({offset, monomials, bound, limit, factor, center, scale});
    }
    return Monomials(context_dim, width, std::move(blocks));
}

void bind_features(nb::module_& m) {
    nb::class_<Monomials>(m, "Monomials")
        .def("__init__",
             [](Monomials* self, std::size_t context_dim, std::size_t width,
                const std::vector<BlockTuple>& blocks) {
                 new (self) Monomials(make_maps(context_dim, width, blocks));
             },
             "context_dim"_a, "width"_a, "blocks"_a)
        .def("row",
             [](const Monomials& maps, const Numbers1& x, const Vector<double>& out) {
                 require(x.shape(0) == maps.context_dim() && out.shape(0) == maps.width(),
                         "a context of another length");
                 return maps.fill(x.data(), out.data());
             },
             "x"_a, "out"_a.noconvert())
        .def("rows",
             [](const Monomials& maps, const Table<const double>& X, const Table<double>& out) {
                 require(X.shape(1) == maps.context_dim() && out.shape(1) == maps.width() &&
                             X.shape(0) == out.shape(0),
                         "contexts of another length");
                 nb::gil_scoped_release let_others_run;
                 for (std::size_t t = 0; t < X.shape(0); ++t) {
                     const std::int64_t status = maps.fill(X.data() + t * maps.context_dim(),
                                                           out.data() + t * maps.width());
                     if (status != 0) return std::make_tuple(t, status);
                 }
                 return std::make_tuple(X.shape(0), std::int64_t{0});
             },
             "X"_a, "out"_a.noconvert());
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
                 PairCounts& counts = shared.value;
                 Row noted(2 * counts.n_pairs());
                 std::size_t stop = 0;
                 {
                     Turn turn(shared);
                     stop = a ? counts.decide_ucb(*a, noted.data()) : counts.decide_ts(noted.data());
                 }
                 return nb::make_tuple(stop, as_bytes(noted.data(), 2 * counts.n_pairs()));
             },
             "a"_a.none())
        .def("learn",
             [](SharedCounts& shared, std::size_t stop, const Answers& differ) {
                 require(differ.shape(0) == shared.value.n_pairs(), "one value a pair");
                 Turn turn(shared);
                 shared.value.learn(stop, differ.data());
             },
             "stop"_a, "differ"_a)
        .def("run",
             [](SharedCounts& shared, std::optional<double> a,
                const Table<const unsigned char>& differ, const Vector<std::int64_t>& stops) {
                 PairCounts& counts = shared.value;
                 require(differ.shape(1) == counts.n_pairs() && stops.shape(0) == differ.shape(0),
                         "tables of other rounds");
                 std::vector<double> noted(2 * counts.n_pairs());
                 LongTurn turn(shared);
                 for (std::size_t t = 0; t < stops.shape(0); ++t) {
                     const std::size_t stop = a ? counts.decide_ucb(*a, noted.data())
                                                : counts.decide_ts(noted.data());
                     stops.data()[t] = static_cast<std::int64_t>(stop);
                     counts.learn(stop, differ.data() + t * counts.n_pairs());
                 }
             },
             "a"_a.none(), "differ"_a, "stops"_a.noconvert())
        .def("state",
             [](SharedCounts& shared) {
                 Turn turn(shared);
                 const PairCounts& counts = shared.value;
                 return std::make_tuple(counts.rounds, counts.revealed, counts.disagreed,
                                        counts.random.state());
             })
        .def("restore",
             [](SharedCounts& shared, std::int64_t rounds, std::vector<std::int64_t> revealed,
                std::vector<std::int64_t> disagreed, std::array<std::uint64_t, 4> random) {
                 PairCounts& counts = shared.value;
                 require(revealed.size() == counts.n_arms() && disagreed.size() == counts.n_pairs(),
                         "counts of another cascade");
                 Turn turn(shared);
                 counts.rounds = rounds;
                 counts.revealed = std::move(revealed);
                 counts.disagreed = std::move(disagreed);
                 counts.random.restore(random);
             },
             "rounds"_a, "revealed"_a, "disagreed"_a, "random"_a)
        .def_prop_ro("rounds", [](SharedCounts& shared) {
            Turn turn(shared);
            return shared.value.rounds;
        });
}

// One regression by itself, so that tests can look at its certificate.
struct Regression {
    Regression(std::size_t d, double ridge)
        : history(2, d > 0 ? d : throw std::invalid_argument("a row without features"), 1, 1), model(d, ridge), phi(padded(d), 0.0), work(padded(d), 0.0), d(d) {}
    Source source() const { return {history, 0, 1, kNoStage, 0}; }
    const double* padded_copy(const Numbers1& x) {
        require(x.shape(0) == d, "features of another length");
        std::copy_n(x.data(), d, phi.begin());
        return phi.data();
    }
    History history;
    Model model;
    Numbers phi, work;
    std::size_t d;
    Effort effort;
};

void bind_parts(nb::module_& m) {
    m.def("exp", &stopwise::exp, "x"_a);
    m.def("log", &stopwise::log, "x"_a);
    m.def("log1p", &stopwise::log1p, "x"_a);
    m.def("sigmoid", &sigmoid, "z"_a);
    m.def("slope", &slope, "z"_a);
    m.def("logit", &logit, "p"_a);
    m.def("certificate", &certificate, "decrement"_a, "reach"_a, "shift"_a);
    m.def("instructions", [] { return kernels().name; });
    nb::class_<Random>(m, "Random")
        .def(nb::init<std::uint64_t>(), "seed"_a)
        .def("uniform", &Random::uniform)
        .def("normal", &Random::normal)
        .def("beta", &Random::beta, "a"_a, "b"_a);
    nb::class_<Factor>(m, "Factor")
        .def(nb::init<std::size_t, double>(), "d"_a, "scale"_a)
        .def("add",
             [](Factor& factor, const Numbers1& x, double w) {
                 require(x.shape(0) == factor.dimension() && w > 0.0, "a row of another length");
                 Numbers row(padded(x.shape(0)), 0.0), inverse(row.size(), 0.0);
                 std::copy_n(x.data(), x.shape(0), row.begin());
                 const double before = factor.add(row.data(), w, inverse.data());
                 std::vector<double> after(inverse.begin(), inverse.begin() + x.shape(0));
                 return nb::make_tuple(before, numpy(std::move(after), {x.shape(0)}));
             },
             "x"_a, "w"_a)
        .def("norm",
             [](const Factor& factor, const Numbers1& x) {
                 require(x.shape(0) == factor.dimension(), "a row of another length");
                 Numbers row(padded(x.shape(0)), 0.0), work(row.size());
                 std::copy_n(x.data(), x.shape(0), row.begin());
                 return std::sqrt(factor.square_norm(row.data(), work.data()));
             },
             "x"_a)
        .def("matrix",
             [](const Factor& factor) {
                 return numpy(factor.matrix(), {factor.dimension(), factor.dimension()});
             })
        .def("inverse",
             [](const Factor& factor) {
                 return numpy(factor.inverse(), {factor.dimension(), factor.dimension()});
             })
        .def("exceeds", &Factor::exceeds, "level"_a);
    nb::class_<Regression>(m, "Regression")
        .def(nb::init<std::size_t, double>(), "d"_a, "ridge"_a)
        .def("learn",
             [](Regression& self, const Numbers1& phi, bool answer) {
                 const double* x = self.padded_copy(phi);
                 const unsigned char yes = answer;
                 self.history.append(x, 1, 1, &yes, {{0, self.d, 1, 0}});
                 self.model.learn(x, answer, 1.0);
             },
             "phi"_a, "answer"_a)
        .def("anchor_at",
             [](Regression& self, const Numbers1& theta) {
                 self.model.anchor_at(self.padded_copy(theta), self.source(), self.effort);
             },
             "theta"_a)
        .def("refine",
             [](Regression& self, bool fresh_hessian, bool cautious) {
                 self.model.refine(self.source(), fresh_hessian, cautious, self.effort);
             },
             "fresh_hessian"_a, "cautious"_a = false)
        .def("solve",
             [](Regression& self, bool fresh_hessian) {
                 return self.model.solve(self.source(), fresh_hessian, self.effort);
             },
             "fresh_hessian"_a = false)
        .def("logit",
             [](Regression& self, const Numbers1& phi) {
                 return self.model.logit(self.padded_copy(phi));
             },
             "phi"_a)
        .def("uncertainty",
             [](Regression& self, const Numbers1& phi) {
                 const double slack = self.model.slack();
                 if (std::isinf(slack)) return slack;
                 return slack * self.model.hessian_norm(self.padded_copy(phi), self.work.data());
             },
             "phi"_a)
        .def("hessian",
             [](const Regression& self) {
                 return numpy(self.model.hessian().matrix(), {self.d, self.d});
             })
        .def_prop_ro("prior_bound", [](const Regression& self) { return self.model.prior_bound(); })
        .def_prop_ro("estimate",
                     [](const Regression& self) {
                         const Numbers& theta = self.model.estimate();
                         return nb::cast(numpy({theta.begin(), theta.begin() + self.d}, {self.d}));
                     })
        .def_prop_ro("reach", [](const Regression& self) { return self.model.reach(); })
        .def_prop_ro("shift", [](const Regression& self) { return self.model.shift(); });
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
    stopwise::bind_parts(m);
}
