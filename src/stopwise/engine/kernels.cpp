// Compiled once per instruction set, with STOPWISE_KERNELS as the name of its namespace.
#include "kernels.h"

#include "simd.h"

// Four independent groups of lanes, to hide latency.
#if defined(__clang__)
#define FOUR(g) _Pragma("clang loop unroll(full)") for (std::size_t g = 0; g < 4; ++g)
#elif defined(__GNUC__)
#define FOUR(g) _Pragma("GCC unroll 4") for (std::size_t g = 0; g < 4; ++g)
#else
#define FOUR(g) for (std::size_t g = 0; g < 4; ++g)
#endif

namespace stopwise::STOPWISE_KERNELS {

namespace {

double dot(const double* a, const double* b, std::size_t n) {
    Lanes s[4] = {};
    std::size_t k = 0;
    for (; k + 16 <= n; k += 16) FOUR(g) s[g] += load(a + k + 4 * g) * load(b + k + 4 * g);
    FOUR(g) if (k + 4 * g < n) s[g] += load(a + k + 4 * g) * load(b + k + 4 * g);
    return sum((s[0] + s[1]) + (s[2] + s[3]));
}

double weighted_square(const double* r, const double* p, std::size_t n) {
    Lanes s = broadcast(0.0);
    for (std::size_t k = 0; k < n; k += kLanes) {
        const Lanes q = load(p + k);
        s += load(r + k) * q * q;
    }
    return sum(s);
}

void forward(const double* lower, std::size_t d, double* x) {
    const std::size_t stride = padded(d);
    for (std::size_t k = 0; k + 1 < d; ++k) {
        const Lanes p = broadcast(x[k]);
        const double* column = lower + k * stride;
        for (std::size_t c = (k + 1) / 4 * 4; c < stride; c += kLanes) {
            store(x + c, load(x + c) - p * load(column + c));
        }
    }
}

void backward(const double* lower, std::size_t d, double* u) {
    const std::size_t stride = padded(d);
    for (std::size_t k = d - 1; k-- > 0;) {
        const double* column = lower + k * stride;
        Lanes s = broadcast(0.0);
        for (std::size_t c = (k + 1) / 4 * 4; c < stride; c += kLanes) {
            s += load(column + c) * load(u + c);
        }
        u[k] -= sum(s);
    }
}

// 1 in the lanes below the diagonal entry, 0 in the others.
alignas(32) constexpr double kBelow[kLanes][kLanes] = {
    {0.0, 1.0, 1.0, 1.0}, {0.0, 0.0, 1.0, 1.0}, {0.0, 0.0, 0.0, 1.0}, {0.0, 0.0, 0.0, 0.0}};

// A + w·xxᵀ = L(D + w·ppᵀ)Lᵀ with Lp = x. With t₀ = 1/w and tₖ₊₁ = tₖ + pₖ²/Dₖ the new factors are
//     D'ₖ = Dₖ·tₖ₊₁/tₖ,    L'ᵣₖ = Lᵣₖ + bₖ·(x − Σ_{c≤k} pc·Lc)ᵣ,    bₖ = pₖ/(Dₖ·tₖ₊₁)
// and where t grows much, L'ᵣₖ = (tₖ/tₖ₊₁)·Lᵣₖ + bₖ·(x − Σ_{c<k} pc·Lc)ᵣ, which is equal and avoids
// cancellation (the composite t-method of Fletcher and Powell, 1974, for w > 0). A'⁻¹x solves
// L'ᵀy = t₀·b, since L'⁻¹x = p·t₀/t and 1/D' is as above.
double grow(double* lower, double* r, std::size_t d, double* x, double w, double* u) {
    const std::size_t stride = padded(d);
    const double start = 1.0 / w;
    double before = 0.0;  // Σ pₖ²/Dₖ separately, because it vanishes in t if w is tiny
    double t = start;
    for (std::size_t k = 0; k < d; ++k) {
        const double p = x[k];
        const double q = p * r[k];
        before += p * q;
        const double next = start + before;
        const double inverse = 1.0 / next;
        const double b = q * inverse;
        const double share = t * inverse;
        u[k] = start * b;
        r[k] *= share;
        const bool grows = next > 4.0 * t;
        t = next;
        const Lanes ps = broadcast(p), bs = broadcast(b);
        const Lanes scale = broadcast(grows ? share : 1.0);
        double* column = lower + k * stride;
        std::size_t c = (k + 1) / 4 * 4;
        if (c <= k) {  // the lanes with the diagonal: entries up to it do not change
            const Lanes l = load(column + c), old = load(x + c);
            const Lanes remainder = old - ps * l;
            store(x + c, remainder);
            const Lanes added = bs * ((grows ? old : remainder) * load(kBelow[k - c]));
            store(column + c, scale * l + added);
            c += kLanes;
        }
        for (; c < stride; c += kLanes) {
            const Lanes l = load(column + c), old = load(x + c);
            const Lanes remainder = old - ps * l;
            store(x + c, remainder);
            store(column + c, scale * l + bs * (grows ? old : remainder));
        }
    }
    for (std::size_t k = d; k < stride; ++k) u[k] = 0.0;
    return before;
}

void factor(double* a, double* r, std::size_t d, double minimum) {
    const std::size_t stride = padded(d);
    for (std::size_t j = 0; j < d; ++j) {
        double* column = a + j * stride;
        const std::size_t first = j / 4 * 4;
        // the rounding error of a column that depends on the others
        const double noise = 2.3e-16 * static_cast<double>(d) * column[j];
        // subtract the projection on earlier columns, a_:j −= Σ_k (L_jk·D_k)·L_:k, four columns at
        // once
        std::size_t k = 0;
        for (; k + 4 <= j; k += 4) {
            const double* l = a + k * stride;
            Lanes f[4];
            FOUR(g) f[g] = broadcast(l[g * stride + j] / r[k + g]);
            for (std::size_t c = first; c < stride; c += kLanes) {
                const Lanes projection =
                    (f[0] * load(l + c) + f[1] * load(l + stride + c)) +
                    (f[2] * load(l + 2 * stride + c) + f[3] * load(l + 3 * stride + c));
                store(column + c, load(column + c) - projection);
            }
        }
        for (; k < j; ++k) {
            const double* l0 = a + k * stride;
            const Lanes f0 = broadcast(l0[j] / r[k]);
            for (std::size_t c = first; c < stride; c += kLanes) {
                store(column + c, load(column + c) - f0 * load(l0 + c));
            }
        }
        const double floor = noise > minimum ? noise : minimum;
        const double pivot = column[j] > floor ? column[j] : floor;
        r[j] = 1.0 / pivot;
        for (std::size_t c = 0; c <= j; ++c) column[c] = 0.0;
        for (std::size_t c = d; c < stride; ++c) column[c] = 0.0;
        const Lanes inverse = broadcast(r[j]);
        for (std::size_t c = first; c < stride; c += kLanes) {
            store(column + c, load(column + c) * inverse);
        }
    }
}

double project(const double* x, std::size_t rows, std::size_t d, const double* theta,
               const double* away, double* z) {
    Lanes maximum = broadcast(0.0);
    for (std::size_t row = 0; row < rows; row += 16) {
        Lanes at[4] = {}, moved[4] = {};
        for (std::size_t c = 0; c < d; ++c) {
            const double* column = x + c * kBlock + row;
            const Lanes t = broadcast(theta[c]), a = broadcast(away[c]);
            FOUR(g) {
                const Lanes values = load(column + 4 * g);
                at[g] += values * t;
                moved[g] += values * a;
            }
        }
        FOUR(g) {
            store(z + row + 4 * g, at[g]);
            maximum = lane_max(maximum, lane_abs(moved[g]));
        }
    }
    return largest(maximum);
}

double weigh(const double* count, std::size_t rows, double* z, double* positive) {
    const Lanes one = broadcast(1.0);
    Lanes minimum = broadcast(0.25);
    for (std::size_t row = 0; row < rows; row += kLanes) {
        const Lanes logits = load(z + row), n = load(count + row);
        const Lanes e = exp_of_negative(broadcast(0.0) - lane_abs(logits));
        const Lanes inverse = one / (one + e);
        const Lanes tail = e * inverse;  // 1 − μ(z) for z ≥ 0, else μ(z): no cancellation
        const Lanes slope = tail * inverse;
        const Lanes yes = load(positive + row);
        store(positive + row, select_negative(logits, n * tail - yes, (n - yes) - n * tail));
        store(z + row, n * slope);
        minimum = lane_min(minimum, slope);
    }
    return 0.0 - largest(broadcast(0.0) - minimum);
}

void add_gradient(const double* x, std::size_t rows, std::size_t d, const double* error,
                  double* gradient) {
    std::size_t c = 0;
    for (; c + 4 <= d; c += 4) {
        Lanes sums[4] = {};
        for (std::size_t row = 0; row < rows; row += kLanes) {
            const Lanes e = load(error + row);
            FOUR(g) sums[g] += e * load(x + (c + g) * kBlock + row);
        }
        FOUR(g) gradient[c + g] += sum(sums[g]);
    }
    for (; c < d; ++c) {
        Lanes s = broadcast(0.0);
        for (std::size_t row = 0; row < rows; row += kLanes) {
            s += load(error + row) * load(x + c * kBlock + row);
        }
        gradient[c] += sum(s);
    }
}

void add_hessian(const double* x, std::size_t rows, std::size_t d, const double* weight,
                 double* h) {
    const std::size_t stride = padded(d), last = d - 1;
    alignas(64) double weighted[2][kBlock];
    // tiles of two columns of h by four rows: eight independent sums
    for (std::size_t c = 0; c < d; c += 2) {
        const std::size_t second = c + 1 < d ? c + 1 : c;
        for (std::size_t row = 0; row < rows; row += kLanes) {
            const Lanes w = load(weight + row);
            store(weighted[0] + row, w * load(x + c * kBlock + row));
            store(weighted[1] + row, w * load(x + second * kBlock + row));
        }
        for (std::size_t i = c / 4 * 4; i < d; i += 4) {
            const double* columns[4];
            FOUR(g) columns[g] = x + (i + g < d ? i + g : last) * kBlock;
            Lanes left[4] = {}, right[4] = {};
            for (std::size_t row = 0; row < rows; row += kLanes) {
                const Lanes w0 = load(weighted[0] + row), w1 = load(weighted[1] + row);
                FOUR(g) {
                    const Lanes values = load(columns[g] + row);
                    left[g] += w0 * values;
                    right[g] += w1 * values;
                }
            }
            // entries above the diagonal and beyond d are never read
            double* column = h + c * stride + i;
            FOUR(g) column[g] += sum(left[g]);
            if (second != c) FOUR(g) column[stride + g] += sum(right[g]);
        }
    }
}

double largest_norm(const double* x, std::size_t rows, std::size_t d, const double* lower,
                    const double* r, double* work) {
    const std::size_t stride = padded(d);
    Lanes maximum = broadcast(0.0);
    for (std::size_t row = 0; row < rows; row += 16) {
        Lanes norms[4] = {};
        for (std::size_t k = 0; k < d; ++k) {
            const Lanes rk = broadcast(r[k]);
            Lanes p[4];
            FOUR(g) p[g] = load(x + k * kBlock + row + 4 * g);
            for (std::size_t c = 0; c < k; ++c) {
                const Lanes l = broadcast(lower[c * stride + k]);
                FOUR(g) p[g] -= l * load(work + c * 16 + 4 * g);
            }
            FOUR(g) {
                store(work + k * 16 + 4 * g, p[g]);
                norms[g] += rk * p[g] * p[g];
            }
        }
        FOUR(g) maximum = lane_max(maximum, norms[g]);
    }
    return largest(maximum);
}

}  // namespace

const Kernels& table(const char* name) {
    static Kernels kernels = {name,            dot,          forward,     backward,
                              weighted_square, grow,         factor,      project,
                              weigh,           add_gradient, add_hessian, largest_norm};
    return kernels;
}

}  // namespace stopwise::STOPWISE_KERNELS
