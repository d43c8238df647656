// Python bindings of the rules.
#include "../rule.h"

#include "bindings.h"

namespace stopwise {
void bind_rules(nb::module_& m) {
    nb::class_<Ellipsoid>(m, "Ellipsoid")
        .def("__init__",
             [](Ellipsoid* self, double sigma, double kappa, double delta, double n_arms) {
                 new (self) Ellipsoid{sigma, kappa, delta, n_arms};
             },
             "sigma"_a, "kappa"_a, "delta"_a, "n_arms"_a);
    nb::class_<Rule>(m, "Rule");
    nb::class_<UssPd, Rule>(m, "UssPd").def(nb::init<Ellipsoid>());
    nb::class_<UssPdRidge, Rule>(m, "UssPdRidge").def(nb::init<Ellipsoid, double, double>());
    nb::class_<Laplace, Rule>(m, "Laplace").def(nb::init<double>());
    nb::class_<Thompson, Laplace>(m, "Thompson").def(nb::init<double>());
    nb::class_<Anchor, Laplace>(m, "Anchor").def(nb::init<double>());
    nb::class_<Supervised, Rule>(m, "Supervised").def(nb::init<Ellipsoid>());
}

}  // namespace stopwise
