// The logistic link μ(z) = 1/(1 + e⁻ᶻ) and its relatives, accurate at any finite argument.
//
// The engine has its own exp, log and log1p, so that no C library is involved and the same
// arguments give the same bits on every machine. Each is accurate to about one unit in the last
// place (tests/unit/engine/test_link.py compares them with the standard library).
#pragma once

namespace stopwise {

double exp(double x);    // 0 below −746, +∞ above 709
double log(double x);    // x > 0
double log1p(double x);  // x > −1

// μ(z), without overflow.
double sigmoid(double z);

// μ'(z) = μ(z)(1 − μ(z)), which keeps its digits where 1 − μ(z) would round to 0.
double slope(double z);

// μ⁻¹(p), extended to −∞ for p ≤ 0 and +∞ for p ≥ 1: cost gaps may lie outside (0, 1), and then
// "gap > μ(z)" and "logit(gap) > z" are the same test for every finite z.
double logit(double p);

}  // namespace stopwise
