// The comparison of two arms, and how verdicts are combined.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "certificate.h"

namespace stopwise {

// What a comparison of two arms was about, in the units of the rule.
struct Comparison {
    double estimate, upper;              // p̂ and p̃
    double gain;                          // the upper value of the gain on disagreement, by labels
    double response;                      // the share of labels that came, where missing ones raise it
    std::optional<std::uint8_t> through;  // the arm through which it was won
    bool won;
};

// A verdict, and of an unsure one the comparison to refine next: (i, j), by whose margin its gap seems
// to win.
struct Outcome {
    Verdict verdict = Verdict::unsure;
    std::size_t i = 0, j = 0;
    double margin = 0.0;
    std::size_t revision = 0;  // of the estimates to which it belongs
};

// Three-valued "and" and "or". Both return one of their arguments, so a settled outcome carries no
// doubt. Of two unsure outcomes, the one that looks more like a loss remains.
inline const Outcome& likelier_loss(const Outcome& a, const Outcome& b) {
    return b.margin < a.margin ? b : a;
}
inline const Outcome& both(const Outcome& a, const Outcome& b) {
    if (a.verdict == b.verdict) return likelier_loss(a, b);
    return a.verdict < b.verdict ? a : b;
}
inline const Outcome& either(const Outcome& a, const Outcome& b) {
    if (a.verdict == b.verdict) return likelier_loss(a, b);
    return a.verdict > b.verdict ? a : b;
}

}  // namespace stopwise
