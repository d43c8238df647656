// The learner as Python has it: shared by threads, with the maps that say what a round gives.
#pragma once

#include <atomic>
#include <memory>
#include <tuple>

#include "../round.h"
#include "bindings.h"
#include "shared.h"

namespace stopwise {

struct SharedLearner : Shared<Learner> {
    SharedLearner(Options options, std::shared_ptr<const FeatureMaps> given)
        : Shared(Learner(std::move(options), *given)), maps(std::move(given)) {}

    // Note whether a single round takes long by now, so that it is worth releasing the interpreter.
    void note_size();

    // As given: what a round gives does not change when maps are fitted.
    const std::shared_ptr<const FeatureMaps> maps;
};

void bind_trace(nb::module_& m);
void bind_round(nb::module_& m);

}  // namespace stopwise
