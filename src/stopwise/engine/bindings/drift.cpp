// Python bindings of drift detection.
#include "../drift.h"

#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"

namespace stopwise {

void bind_drift(nb::module_& m) {
    nb::class_<Change>(m, "Change")
        .def_ro("round", &Change::round)
        .def_prop_ro("pair",
                     [](const Change& change) { return std::make_pair(change.i, change.j); })
        .def_ro("before", &Change::before)
        .def_ro("after", &Change::after)
        .def_ro("noticed", &Change::noticed);
    nb::class_<Adwin>(m, "Adwin")
        .def(nb::init<double>(), "false_alarm"_a)
        .def("add",
             [](Adwin& window, std::int64_t rows, std::int64_t sum, std::int64_t squares,
                std::int64_t disagreed,
                std::int64_t first) -> std::optional<std::tuple<std::int64_t, double, double>> {
                 const auto cut = window.add({rows, sum, squares, disagreed, first});
                 if (!cut) return std::nullopt;
                 return std::make_tuple(cut->round, cut->before, cut->after);
             },
             "rows"_a, "sum"_a, "squares"_a, "disagreed"_a, "first"_a)
        .def("move", &Adwin::move, "by"_a)
        .def_prop_ro("buckets",
                     [](const Adwin& window) {
                         using Row = std::array<std::int64_t, 5>;
                         std::vector<Row> rows;
                         for (const Adwin::Bucket& b : window.buckets()) {
                             rows.push_back({b.rows, b.sum, b.squares, b.disagreed, b.first});
                         }
                         return rows;
                     })
        .def_prop_ro_static("RESIDUAL_UNIT", [](nb::handle) { return kResidualUnit; })
        .def_prop_ro_static("TEST_BATCH", [](nb::handle) { return kTestBatch; })
        .def_prop_ro_static("FALSE_ALARM", [](nb::handle) { return kFalseAlarm; });
}

}  // namespace stopwise
