// The Python module `stopwise.engine.native`. Only this folder depends on Python.
#include "../archive.h"
#include "../kernels.h"
#include "../link.h"
#include "bindings.h"

NB_MODULE(native, m) {
    nb::set_leak_warnings(false);  // caches and modules may keep policies until the process exits
    nb::register_exception_translator([](const std::exception_ptr& p, void*) {
        try {
            std::rethrow_exception(p);
        } catch (const stopwise::BadArchive& error) {
            PyErr_SetString(PyExc_ValueError, error.what());
        }
    });
    stopwise::bind_rules(m);
    stopwise::bind_drift(m);
    stopwise::bind_learner(m);
    stopwise::bind_features(m);
    stopwise::bind_counts(m);
    m.def("log", &stopwise::log, "x"_a);
    m.def("instructions", [] { return stopwise::kernels().name; });
}
