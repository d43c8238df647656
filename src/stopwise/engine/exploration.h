// Exploration: rounds that go to the last arm at random, whatever the rule says.
#pragma once

#include <algorithm>

#include "plan.h"
#include "random.h"

namespace stopwise {

// Exploration falls like 1/t from round kExploreFor on, to a share kExploreFloor of where it began.
// Heuristics, by simulation: flat optima.
inline constexpr double kExploreFor = 200.0, kExploreFloor = 1.0 / 30.0;
inline constexpr double kRevealedFloor = 1.0 / 10.0;  // … where answers that are drawn rest on it

// The share of rounds that explore after so many.
inline double explore_rate(const Plan& plan, std::int64_t rounds) {
    const double falling = 1.0 / (1.0 + static_cast<double>(rounds) / kExploreFor);
    return plan.explore * std::max(falling, plan.reveals() ? kRevealedFloor : kExploreFloor);
}

// Whether the round of decision number ``draw`` explores, after so many rounds.
inline bool explores(const Plan& plan, std::int64_t draw, std::int64_t rounds) {
    return plan.explore > 0.0 &&
           draw_of(plan.seed, draw, kExploring) < explore_rate(plan, rounds);
}

}  // namespace stopwise
