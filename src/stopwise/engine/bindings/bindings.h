// Registration functions of the native module.
#pragma once

#include "arrays.h"

namespace stopwise {

void bind_rules(nb::module_& m);
void bind_learner(nb::module_& m);
void bind_drift(nb::module_& m);
void bind_features(nb::module_& m);
void bind_counts(nb::module_& m);

}  // namespace stopwise
