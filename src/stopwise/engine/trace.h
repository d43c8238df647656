// Trace of a decision: its reason, comparisons and random draws.
#pragma once

#include <cstdint>
#include <vector>

#include "stopping.h"

namespace stopwise {

enum class Reason { rule, forced, fixed_by_labels };

struct Trace {
    Reason reason = Reason::rule;
    std::size_t stop = 0, rule_stop = 0;
    bool explored = false;      // whether exploration sends the round to the last arm
    std::int64_t number = 0;    // index of the decision, which seeds its random draws
    std::int64_t revision = 0;  // number of rounds and labels learned before
    std::vector<double> row;    // the features
    Comparisons comparisons;
};

}  // namespace stopwise
