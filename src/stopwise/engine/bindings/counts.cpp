// Python bindings of the context-free counts and of random numbers.
#include "../counts.h"

#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "locked.h"

namespace stopwise {
namespace {

using SharedCounts = Locked<PairCounts>;

// A uniform number in [0, 1) for each of n rounds, starting with round ``first``.
NumpyNumbers draws(std::uint64_t seed, std::int64_t first, std::size_t n) {
    std::vector<double> numbers(n);
    for (std::size_t t = 0; t < n; ++t) {
        numbers[t] = draw_of(seed, first + static_cast<std::int64_t>(t), 0);
    }
    return numpy(std::move(numbers), {n});
}

}  // namespace

void bind_counts(nb::module_& m) {
    nb::class_<SharedCounts>(m, "PairCounts")
        .def("__init__",
             [](SharedCounts* self, std::size_t n_arms, std::vector<double> gaps,
                std::uint64_t seed) {
                 require(n_arms >= 2 && gaps.size() == n_arms * n_arms,
                         "gaps must have shape (K, K)");
                 new (self) SharedCounts(PairCounts(n_arms, std::move(gaps), seed));
             },
             "n_arms"_a, "gaps"_a, "seed"_a)
        .def("decide",
             [](SharedCounts& shared, std::optional<double> a) {
                 std::vector<double> evidence(2 * shared.value.n_pairs());
                 const std::size_t stop =
                     shared.short_call([&] { return shared.value.decide(a, evidence.data()); });
                 return std::make_pair(
                     stop, nb::bytes(evidence.data(), evidence.size() * sizeof(double)));
             },
             "a"_a.none())
        .def("learn",
             [](SharedCounts& shared, std::size_t stop, const Vector<const unsigned char>& differ) {
                 require(has_shape(differ, shared.value.n_pairs()),
                         "differ must have one value per pair");
                 shared.short_call([&] { shared.value.learn(stop, differ.data()); });
             },
             "stop"_a, "differ"_a)
        .def("run",
             [](SharedCounts& shared, std::optional<double> a,
                const Table<const unsigned char>& differ, const Vector<std::int64_t>& stops) {
                 PairCounts& counts = shared.value;
                 const std::size_t pairs = counts.n_pairs();
                 require(has_shape(differ, stops.shape(0), pairs),
                         "differ must have one row per stop and one column per pair");
                 std::vector<double> evidence(2 * pairs);
                 shared.long_call([&] {
                     for (std::size_t t = 0; t < stops.shape(0); ++t) {
                         const std::size_t stop = counts.decide(a, evidence.data());
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
                         "the counts are from another cascade");
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
    m.def("draws", &draws, "seed"_a, "first"_a, "n"_a);
}

}  // namespace stopwise
