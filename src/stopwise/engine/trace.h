// What a decision rested on.
#pragma once

#include <cstdint>
#include <vector>

#include "stopping.h"

namespace stopwise {

enum class Reason { rule, forced, fixed_by_labels };

struct Trace {
    Reason reason = Reason::rule;
    std::size_t stop = 0, rule_stop = 0;
    bool explored = false;  // whether the round goes to the last arm at random
    std::int64_t number = 0;    // of the decision, from which its random draws follow
    std::int64_t revision = 0;  // rounds and labels that were learned before
    std::vector<double> row;    // the features
    Comparisons comparisons;
};

}  // namespace stopwise
