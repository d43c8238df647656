// Feature maps for Python.
#include "../features.h"
#include "../scaling.h"

#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"

namespace stopwise {
namespace {

// Of a map: offset, monomials, bound, limit, factors, center, scale.
using BlockTuple = std::tuple<std::size_t, std::vector<std::vector<std::size_t>>, double, double,
                              std::vector<double>, std::vector<double>, std::vector<double>>;

using ScalingTuple =
    std::tuple<std::vector<double>, std::vector<double>, std::vector<std::size_t>>;

ScalingTuple scaling_of(const Table<const double>& contexts) {
    require(contexts.shape(0) > 0, "contexts");
    nb::gil_scoped_release others_run;
    Scaling scaling = fit_scaling(contexts.data(), contexts.shape(0), contexts.shape(1));
    return {std::move(scaling.center), std::move(scaling.scale), std::move(scaling.two_valued)};
}

}  // namespace

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
    m.def("fit_scaling", &scaling_of, "contexts"_a);
}

}  // namespace stopwise
