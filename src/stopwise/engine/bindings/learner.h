// The learner of the Python bindings: locked, with its initial options and maps.
#pragma once

#include <atomic>
#include <memory>
#include <tuple>

#include "../round.h"
#include "bindings.h"
#include "locked.h"

namespace stopwise {

struct SharedLearner : Locked<Learner> {
    SharedLearner(Options initial_options, std::shared_ptr<const FeatureMaps> initial_maps)
        : Locked(Learner(initial_options, *initial_maps)), options(std::move(initial_options)),
          maps(std::move(initial_maps)) {}

    // Update `slow`: whether a single round takes so long that calls should release the GIL.
    void update_slow();

    // Initial values, which calls read without the lock: the format of a context does not change
    // when maps are fitted.
    const Options options;
    const std::shared_ptr<const FeatureMaps> maps;
};

// Check the length of a context after ``arms`` arms have answered.
inline void check_dim(const FeatureMaps& maps, std::size_t numbers, std::size_t arms) {
    require(maps.revealed() ? numbers >= maps.dim_after(arms) : numbers == maps.caller_dim(),
            "the context has the wrong length");
}

void bind_trace(nb::module_& m);
void bind_round(nb::module_& m);

}  // namespace stopwise
