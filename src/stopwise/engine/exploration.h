// Exploration: random rounds that run every arm regardless of the rule.
#pragma once

#include <algorithm>

#include "config.h"
#include "random.h"

namespace stopwise {

// From about round kExploreRounds, the exploration rate decays as 1/t, down to kExploreFloor times
// the initial rate. Heuristics, tuned by simulation; the optimum is flat.
inline constexpr double kExploreRounds = 200.0, kExploreFloor = 1.0 / 30.0;
inline constexpr double kRevealedFloor = 1.0 / 10.0;  // where exploration corrects drawn answers

// The exploration probability after ``rounds`` rounds.
inline double explore_rate(const Config& config, std::int64_t rounds) {
    const double decaying = 1.0 / (1.0 + static_cast<double>(rounds) / kExploreRounds);
    return config.explore * std::max(decaying, config.reveals() ? kRevealedFloor : kExploreFloor);
}

// Whether decision number ``number`` explores, after ``rounds`` rounds.
inline bool explores(const Config& config, std::int64_t number, std::int64_t rounds) {
    return config.explore > 0.0 &&
           draw_of(config.seed, number, kExploring) < explore_rate(config, rounds);
}

}  // namespace stopwise
