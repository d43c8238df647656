// The certificate: a proved bound on the error of an estimate, and comparisons based on it.
//
// An estimate minimises L(θ) = Σ_s [ln(1 + e^{φ_sᵀθ}) − d_s·φ_sᵀθ] + ridge/2·‖θ‖²; θ̂ is exact. Let
// g be the gradient at a point θ_g, H the Hessian at a point θ_h, v = −H⁻¹g and θ̃ = θ_g + v, with
//
//     λ = ‖v‖_H          the decrement
//     m ≥ ‖φ_s‖_{H⁻¹}    the reach, for every row s of the history
//     ρ ≥ |φ_sᵀ(θ_g − θ_h)|    the shift, for every row s
//
// Because |μ''| ≤ μ', moving the logits by at most z changes every weight μ' of H by a factor in
// [e⁻ᶻ, eᶻ]. Lemma (proved in docs/certificate-proof.md): with r = λ·m and
// q = e^{ρ+r}·(e^ρ(e^r − 1) − r),
//
//     q < 1   ⟹   |φᵀ(θ̃ − θ̂)| ≤ ‖φ‖_{H⁻¹} · (−ln(1 − q))/m   for every φ.
#pragma once

#include <algorithm>
#include <limits>

#include "link.h"

namespace stopwise {

inline constexpr double kExact = 1e-12;  // logits closer than this count as equal

// An upper bound on eᶻ − 1, z ≥ 0: for small z a rational function, which avoids exp.
inline double growth(double z) { return z < 1.0 ? 2.0 * z / (2.0 - z) : exp(z) - 1.0; }

// b such that |φᵀ(θ̃ − θ̂)| ≤ ‖φ‖_{H⁻¹}·b for every φ, or +∞ if there is no bound.
inline double certificate(double decrement, double reach, double shift) {
    if (reach <= 0.0) {  // L is quadratic; only the error of H remains (m → 0 in both bounds)
        return decrement * std::min(exp(shift) * growth(shift), 1.0 + exp(shift));
    }
    const double r = decrement * reach;
    const double z = shift + r;
    double bound = std::numeric_limits<double>::infinity();
    if (z < 1.0) {  // q ≥ 1 already for smaller z
        // Each factor of q = e^{ρ+r}·((e^ρ − 1)(eʳ − 1) + (eʳ − 1 − r)) by a rational upper bound:
        // eᶻ ≤ (2 + z)/(2 − z),  eᶻ − 1 ≤ 2z/(2 − z),  eᶻ − 1 − z ≤ 3z²/(6 − 2z),  0 ≤ z < 2.
        // They cost a few divisions and are accurate near zero.
        const double excess = 3.0 * r * r / (6.0 - 2.0 * r);
        const double q = (2.0 + z) / (2.0 - z) *
                         (4.0 * shift * r / ((2.0 - shift) * (2.0 - r)) + excess);
        if (q < 1.0) {  // −ln(1 − q) ≤ q + q²/(2(1 − q))
            bound = q * (1.0 + 0.5 * q / (1.0 - q)) / reach;
        }
    }
    // Far from the minimum, a bound on the distance to θ_g (docs/certificate-proof.md, step 4).
    if (!(bound * reach <= 0.7)) {
        const double remaining = 1.0 - r * exp(shift);
        if (remaining > 0.0) bound = std::min(bound, decrement - log(remaining) / reach);
    }
    return bound;
}

// An upper value and its certificate: low ≤ value at the exact estimate ≤ high. In logits, unless
// the rule uses another unit (`Rule::threshold`). ``estimate`` is the value without the bonus.
struct Upper {
    double estimate, value, low, high;
};

enum class Verdict { loses, unsure, wins };

// The strict test "threshold > value" for the value at the exact estimate. If ``exact``, compares
// the current value without its certificate.
inline Verdict certified(double threshold, const Upper& upper, bool exact) {
    if (exact) return threshold > upper.value ? Verdict::wins : Verdict::loses;
    if (threshold > upper.high) return Verdict::wins;
    return threshold <= upper.low ? Verdict::loses : Verdict::unsure;
}

}  // namespace stopwise
