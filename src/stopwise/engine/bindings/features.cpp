// Python bindings of feature maps.
#include "../features.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <variant>

#include "../scaling.h"
#include "bindings.h"

namespace stopwise {
namespace {

using Doubles = std::vector<double>;
using Indices = std::vector<std::size_t>;
// Monomials, bound, limit, factors, center, scale.
using MonomialTuple = std::tuple<std::vector<Indices>, double, double, Doubles, Doubles, Doubles>;
// Degree, center, scale, two-valued coordinates, size.
using StandardTuple =
    std::tuple<std::size_t, Doubles, Doubles, Indices, std::optional<double>>;
// A map, or the number of features of a custom map.
using SlotVariant = std::variant<std::size_t, MonomialTuple, StandardTuple>;

FeatureMaps::Slot slot_of(const SlotVariant& variant) {
    FeatureMaps::Slot slot{0, std::nullopt, std::nullopt};
    if (const auto* n_features = std::get_if<std::size_t>(&variant)) slot.n_features = *n_features;
    if (const auto* map = std::get_if<MonomialTuple>(&variant)) {
        const auto& [monomials, bound, limit, factors, center, scale] = *map;
        slot.map = MonomialMap{monomials, bound, limit, factors, center, scale};
    }
    if (const auto* map = std::get_if<StandardTuple>(&variant)) {
        const auto& [degree, center, scale, two_valued, size] = *map;
        slot.standard = StandardMap{degree, center, scale, two_valued, size};
    }
    return slot;
}

void create(FeatureMaps* self, std::size_t n_arms, std::size_t context_dim,
            const std::vector<SlotVariant>& variants, Indices slot_of_pair,
            std::optional<std::tuple<Indices, bool>> stages) {
    std::vector<FeatureMaps::Slot> slots;
    for (const SlotVariant& slot : variants) slots.push_back(slot_of(slot));
    std::optional<FeatureMaps::Stages> revealed;
    if (stages) revealed = {std::get<0>(*stages), std::get<1>(*stages)};
    new (self) FeatureMaps(n_arms, context_dim, std::move(slots), std::move(slot_of_pair),
                           std::move(revealed));
}

std::optional<std::tuple<std::size_t, std::size_t, std::size_t, bool>> rows(
    const FeatureMaps& maps, const Table<const double>& X, const Table<double>& out) {
    require(X.shape(1) == maps.context_dim() && has_shape(out, X.shape(0), maps.width()) &&
                !maps.revealed(),
            "X or out has the wrong shape");
    nb::gil_scoped_release released;
    for (std::size_t t = 0; t < X.shape(0); ++t) {
        const double* const context = X.data() + t * maps.context_dim();
        const auto invalid = maps.fill_native(context, out.data() + t * maps.width());
        if (invalid) return std::make_tuple(t, invalid->slot, invalid->coordinate, invalid->finite);
    }
    return std::nullopt;
}

std::vector<std::optional<StandardTuple>> standards(const FeatureMaps& maps) {
    std::vector<std::optional<StandardTuple>> standards;
    for (std::size_t s = 0; s < maps.slots(); ++s) {
        standards.emplace_back();
        const auto& map = maps.slot(s).standard;
        if (!map) continue;
        standards.back() = {map->degree, map->center, map->scale, map->two_valued, map->size};
    }
    return standards;
}

// A property with a number for each slot.
template <class Function>
auto each(Function function) {
    return [function](const FeatureMaps& maps) {
        Indices numbers;
        for (std::size_t s = 0; s < maps.slots(); ++s) numbers.push_back(function(maps, s));
        return numbers;
    };
}

using ScalingTuple = std::tuple<Doubles, Doubles, Indices>;

ScalingTuple scaling_of(const Table<const double>& contexts) {
    require(contexts.shape(0) > 0, "contexts must not be empty");
    nb::gil_scoped_release released;
    Scaling scaling = fit_scaling(contexts.data(), contexts.shape(0), contexts.shape(1));
    return {std::move(scaling.center), std::move(scaling.scale), std::move(scaling.two_valued)};
}

}  // namespace

void bind_features(nb::module_& m) {
    nb::class_<FeatureMaps>(m, "FeatureMaps")
        .def("__init__", &create, "n_arms"_a, "context_dim"_a, "slots"_a, "slot_of_pair"_a,
             "stages"_a.none())
        .def("rows", &rows, "X"_a, "out"_a.noconvert())
        .def("standards", &standards)
        .def_prop_ro("dims", each([](const FeatureMaps& maps, std::size_t slot) {
                         return maps.slot(slot).n_features;
                     }))
        .def_prop_ro("offsets", each([](const FeatureMaps& maps, std::size_t slot) {
                         return maps.offset(slot);
                     }))
        .def_prop_ro("input_dims", each([](const FeatureMaps& maps, std::size_t slot) {
                         return maps.input_dim(slot);
                     }))
        .def_prop_ro("width", &FeatureMaps::width)
        .def_prop_ro("complete", &FeatureMaps::complete)
        .def_prop_ro("self_scaling", &FeatureMaps::self_scaling);
    m.def("fit_scaling", &scaling_of, "contexts"_a);
}

}  // namespace stopwise
