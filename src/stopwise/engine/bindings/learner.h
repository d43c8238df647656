// The learner as Python has it: shared by threads, with the maps that say what a round gives.
#pragma once

#include <atomic>
#include <memory>
#include <tuple>

#include "../round.h"
#include "bindings.h"
#include "locked.h"

namespace stopwise {

struct SharedLearner : Locked<Learner> {
    SharedLearner(Options chosen, std::shared_ptr<const FeatureMaps> given)
        : Locked(Learner(chosen, *given)), options(std::move(chosen)), maps(std::move(given)) {}

    // Note whether a single round takes long by now, so that it is worth releasing the interpreter.
    void note_size();

    // As given, and read by calls that wait for their turn: what a round gives does not change when
    // maps are fitted.
    const Options options;
    const std::shared_ptr<const FeatureMaps> maps;
};

// Require so many numbers of a round in which so many arms have answered.
inline void check_dim(const FeatureMaps& maps, std::size_t numbers, std::size_t arms) {
    require(maps.revealed() ? numbers >= maps.dim_after(arms) : numbers == maps.caller_dim(),
            "the context has a wrong length");
}

void bind_trace(nb::module_& m);
void bind_round(nb::module_& m);

}  // namespace stopwise
