// Python bindings of decision traces.
#include "learner.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

namespace stopwise {
namespace {

// Of a pair: p̂, p̃, gain, share of labels received, intermediate arm, whether it won.
using ComparisonTuple =
    std::tuple<double, double, double, double, std::optional<std::uint8_t>, bool>;
// Reason, stop, stop of the rule, exploration flag, number, revision, features, and the comparison
// of each pair.
using TraceTuple = std::tuple<int, std::size_t, std::size_t, bool, std::int64_t, std::int64_t,
                              std::vector<double>, std::vector<std::optional<ComparisonTuple>>>;

TraceTuple values_of(const Trace& trace) {
    std::vector<std::optional<ComparisonTuple>> comparisons;
    for (const std::optional<Comparison>& c : trace.comparisons) {
        comparisons.emplace_back();
        if (!c) continue;
        comparisons.back() = {c->estimate, c->upper, c->gain, c->response, c->through, c->won};
    }
    return {static_cast<int>(trace.reason), trace.stop,     trace.rule_stop,
            trace.explored,                 trace.number,   trace.revision,
            trace.row,                      std::move(comparisons)};
}

Trace trace_of(const TraceTuple& values) {
    const auto& [reason, stop, rule_stop, explored, number, revision, row, comparisons] = values;
    require(reason >= 0 && reason <= static_cast<int>(Reason::fixed_by_labels), "invalid trace");
    Trace trace{static_cast<Reason>(reason), stop, rule_stop, explored, number, revision, row, {}};
    for (const std::optional<ComparisonTuple>& comparison : comparisons) {
        trace.comparisons.emplace_back();
        if (!comparison) continue;
        const auto& [estimate, upper, gain, response, through, won] = *comparison;
        trace.comparisons.back() = {estimate, upper, gain, response, through, won};
    }
    return trace;
}

}  // namespace

void bind_trace(nb::module_& m) {
    nb::class_<Trace>(m, "Trace")
        .def_ro("stop", &Trace::stop)
        .def_ro("rule_stop", &Trace::rule_stop)
        .def_ro("explored", &Trace::explored)
        .def_ro("revision", &Trace::revision)
        .def_prop_ro("forced", [](const Trace& trace) { return trace.reason == Reason::forced; })
        .def_prop_ro("fixed_by_labels",
                     [](const Trace& trace) { return trace.reason == Reason::fixed_by_labels; })
        .def("__getstate__", &values_of)
        .def("__setstate__",
             [](Trace& trace, const TraceTuple& values) { new (&trace) Trace(trace_of(values)); });
}

}  // namespace stopwise
