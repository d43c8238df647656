// Comparisons of two arms, and three-valued logic on their verdicts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "certificate.h"

namespace stopwise {

// The values of a comparison of two arms, in the units of the rule.
struct Comparison {
    double estimate, upper;               // p̂ and p̃
    double gain;                          // upper bound on the gain, from labels
    double response;                      // share of labels received, if missing ones increase it
    std::optional<std::uint8_t> through;  // the intermediate arm of a transitive win
    bool won;
};

// A verdict. If it is unsure, (i, j) is the comparison to refine next and ``margin`` the amount by
// which its gap appears to win.
struct Outcome {
    Verdict verdict = Verdict::unsure;
    std::size_t i = 0, j = 0;
    double margin = 0.0;
    std::size_t revision = 0;  // of the estimates it is based on
};

// Three-valued "and" and "or". Both return one of their arguments. Of two unsure outcomes, they
// return the one more likely to lose.
inline const Outcome& more_likely_loss(const Outcome& a, const Outcome& b) {
    return b.margin < a.margin ? b : a;
}
inline const Outcome& both(const Outcome& a, const Outcome& b) {
    if (a.verdict == b.verdict) return more_likely_loss(a, b);
    return a.verdict < b.verdict ? a : b;
}
inline const Outcome& either(const Outcome& a, const Outcome& b) {
    if (a.verdict == b.verdict) return more_likely_loss(a, b);
    return a.verdict > b.verdict ? a : b;
}

}  // namespace stopwise
