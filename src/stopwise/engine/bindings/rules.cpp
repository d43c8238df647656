// The rules, and probabilities by estimates, for Python.
#include "../rule.h"

#include "bindings.h"

namespace stopwise {
namespace {

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

}  // namespace

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
    m.def("chances", &chances, "rows"_a, "thetas"_a);
}

}  // namespace stopwise
