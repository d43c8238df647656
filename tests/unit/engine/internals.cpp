// Internals of the engine for unit tests: the module `stopwise.engine.internals`, which only editable
// installs build (CMakeLists.txt).
#include <nanobind/stl/pair.h>

#include <cmath>

#include "../../../src/stopwise/engine/bindings/arrays.h"
#include "../../../src/stopwise/engine/certificate.h"
#include "../../../src/stopwise/engine/learner.h"
#include "../../../src/stopwise/engine/random.h"

namespace stopwise {
namespace {

// A single regression with its certificate.
struct Regression {
    Regression(std::size_t d, double ridge, double half_life)
        : history(2, d, {1}, rate_of(half_life)),
          model(d, ridge, rate_of(half_life)), scope{0, d, 1, 1, d},
          row(padded(d), 0.0) {}

    Source source() const { return {history, 0, scope, static_cast<double>(rounds)}; }
    const double* load(const Numbers1& x) {
        require(has_shape(x, scope.dim), "the features have a wrong length");
        std::copy_n(x.data(), scope.dim, row.begin());
        return row.data();
    }
    void learn(const Numbers1& phi, bool answer) {
        const unsigned char positive = answer;
        history.append(load(phi), 1, &positive, rounds++);
        model.learn(row.data(), answer, static_cast<double>(rounds));
    }
    // φᵀθ̃ and the proved bound on its error.
    std::pair<double, double> logit(const Numbers1& phi) {
        Numbers work(row.size());
        const double z = model.logit(load(phi)), slack = model.slack();
        if (std::isinf(slack)) return {z, slack};
        return {z, slack * model.hessian_norm(row.data(), work.data())};
    }
    NumpyNumbers estimate() const {
        const auto begin = model.estimate().begin();
        return numpy({begin, begin + static_cast<std::ptrdiff_t>(scope.dim)}, {scope.dim});
    }

    History history;
    Model model;
    Scope scope;
    Numbers row;
    Effort effort;
    std::int64_t rounds = 0;
};

}  // namespace
}  // namespace stopwise

NB_MODULE(internals, m) {
    using namespace stopwise;
    m.def("exp", &stopwise::exp, "x"_a);
    m.def("log", &stopwise::log, "x"_a);
    m.def("log1p", &stopwise::log1p, "x"_a);
    m.def("sigmoid", &sigmoid, "z"_a);
    m.def("logit", &logit, "p"_a);
    m.def("certificate", &certificate, "decrement"_a, "reach"_a, "shift"_a);
    nb::class_<Random>(m, "Random")
        .def(nb::init<std::uint64_t>(), "seed"_a)
        .def("uniform", &Random::uniform)
        .def("normal", &Random::normal)
        .def("beta", &Random::beta, "a"_a, "b"_a);
    nb::class_<Regression>(m, "Regression")
        .def(nb::init<std::size_t, double, double>(), "d"_a, "ridge"_a, "half_life"_a = 0.0)
        .def("learn", &Regression::learn, "phi"_a, "answer"_a)
        .def("anchor_at",
             [](Regression& r, const Numbers1& theta) {
                 r.model.anchor_at(r.load(theta), r.source(), r.effort);
             })
        .def("refine",
             [](Regression& r, bool fresh) { r.model.refine(r.source(), fresh, false, r.effort); })
        .def("solve",
             [](Regression& r, bool fresh) { return r.model.solve(r.source(), fresh, r.effort); },
             "fresh_hessian"_a = false)
        .def("logit", &Regression::logit)
        .def("hessian",
             [](const Regression& r) {
                 return numpy(r.model.hessian().matrix(), {r.scope.dim, r.scope.dim});
             })
        .def("estimate", &Regression::estimate)
        .def_prop_ro("prior_bound", [](const Regression& r) { return r.model.prior_bound(); })
        .def_prop_ro("passes", [](const Regression& r) { return r.effort.passes; })
        .def_prop_ro("rows_visited", [](const Regression& r) { return r.effort.rows_visited; })
        .def_prop_ro("reach", [](const Regression& r) { return r.model.reach(); })
        .def_prop_ro("shift", [](const Regression& r) { return r.model.shift(); });
}
