// The certificate: a proved bound on the error of an estimate, and the comparison that it decides.
//
// An estimate minimises L(θ) = Σ_s [ln(1 + e^{φ_sᵀθ}) − d_s·φ_sᵀθ] + ridge/2·‖θ‖²; θ̂ is exact. Let g
// be the gradient at a point θ_g, H the Hessian at a point θ_h, v = −H⁻¹g and θ̃ = θ_g + v, with
//
//     λ = ‖v‖_H          the decrement
//     m ≥ ‖φ_s‖_{H⁻¹}    the reach, for every row s of history
//     ρ ≥ |φ_sᵀ(θ_g − θ_h)|    the shift, likewise
//
// Because |μ''| ≤ μ', a move of the logits by at most z changes every weight μ' of H by a factor in
// [e⁻ᶻ, eᶻ]. Lemma (docs/certificate.md derives it): with r = λ·m and q = e^{ρ+r}·(e^ρ(e^r − 1) − r),
//
//     q < 1   ⟹   |φᵀ(θ̃ − θ̂)| ≤ ‖φ‖_{H⁻¹} · (−ln(1 − q))/m   for every φ.
#pragma once

#include <algorithm>
#include <limits>

#include "link.h"

namespace stopwise {

inline constexpr double kExact = 1e-12;  // logits closer than this count as equal

// eᶻ − 1, z ≥ 0, or a little more: for small z a rational bound, which needs no exp.
inline double growth(double z) { return z < 1.0 ? 2.0 * z / (2.0 - z) : exp(z) - 1.0; }

// b such that |φᵀ(θ̃ − θ̂)| ≤ ‖φ‖_{H⁻¹}·b for every φ, or +∞ if nothing is proved.
inline double certificate(double decrement, double reach, double shift) {
    if (reach <= 0.0) {  // a quadratic: exact, but for what H lacks (the limit m → 0 of both bounds)
        return decrement * std::min(exp(shift) * growth(shift), 1.0 + exp(shift));
    }
    const double r = decrement * reach;
    const double z = shift + r;
    double bound = std::numeric_limits<double>::infinity();
    if (z < 1.0) {  // q ≥ 1 well before this
        // Each factor of q = e^{ρ+r}·((e^ρ − 1)(eʳ − 1) + (eʳ − 1 − r)) by a rational upper bound:
        // eᶻ ≤ (2 + z)/(2 − z),  eᶻ − 1 ≤ 2z/(2 − z),  eᶻ − 1 − z ≤ 3z²/(6 − 2z),  0 ≤ z < 2.
        // They cost a few divisions, stay accurate near zero, and err on the safe side.
        const double excess = 3.0 * r * r / (6.0 - 2.0 * r);
        const double q = (2.0 + z) / (2.0 - z) *
                         (4.0 * shift * r / ((2.0 - shift) * (2.0 - r)) + excess);
        if (q < 1.0) {  // −ln(1 − q) ≤ q + q²/(2(1 − q))
            bound = q * (1.0 + 0.5 * q / (1.0 - q)) / reach;
        }
    }
    // Far from the minimum the step proves little; but θ̂ is near θ_g itself (docs/certificate.md).
    if (!(bound * reach <= 0.7)) {
        const double left = 1.0 - r * exp(shift);
        if (left > 0.0) bound = std::min(bound, decrement - log(left) / reach);
    }
    return bound;
}

// An upper value and its certificate: low ≤ value at the exact estimate ≤ high. In logits, unless
// the rule uses another unit (`Rule::threshold`). ``estimate`` is the value without optimism.
struct Upper {
    double estimate, value, low, high;
};

enum class Verdict { loses, unsure, wins };

// The stopping rule's test "threshold > value", strictly, for the value at the exact estimate.
// If ``exact``, the value itself is compared.
inline Verdict certified(double threshold, const Upper& upper, bool exact) {
    if (exact) return threshold > upper.value ? Verdict::wins : Verdict::loses;
    if (threshold > upper.high) return Verdict::wins;
    return threshold <= upper.low ? Verdict::loses : Verdict::unsure;
}

}  // namespace stopwise
