// Compiled once for each set of instructions, with STOPWISE_KERNELS as the name of its namespace.
#include "kernels.h"

#include "lanes.h"

namespace stopwise::STOPWISE_KERNELS {

namespace {

double dot(const double* a, const double* b, std::size_t n) {
    Lanes s0 = broadcast(0.0), s1 = s0, s2 = s0, s3 = s0;
    std::size_t k = 0;
    for (; k + 16 <= n; k += 16) {
        s0 += load(a + k) * load(b + k);
        s1 += load(a + k + 4) * load(b + k + 4);
        s2 += load(a + k + 8) * load(b + k + 8);
        s3 += load(a + k + 12) * load(b + k + 12);
    }
    if (k < n) s0 += load(a + k) * load(b + k);
    if (k + 4 < n) s1 += load(a + k + 4) * load(b + k + 4);
    if (k + 8 < n) s2 += load(a + k + 8) * load(b + k + 8);
    return sum((s0 + s1) + (s2 + s3));
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

// 1 in the lanes below a diagonal entry, 0 in the others.
alignas(32) constexpr double kBelow[kLanes][kLanes] = {
    {0.0, 1.0, 1.0, 1.0}, {0.0, 0.0, 1.0, 1.0}, {0.0, 0.0, 0.0, 1.0}, {0.0, 0.0, 0.0, 0.0}};

// A + w·xxᵀ = L(D + w·ppᵀ)Lᵀ with Lp = x. With t₀ = 1/w and tₖ₊₁ = tₖ + pₖ²/Dₖ the new factors are
//     D'ₖ = Dₖ·tₖ₊₁/tₖ,    L'ᵣₖ = Lᵣₖ + bₖ·(x − Σ_{c≤k} pc·Lc)ᵣ,    bₖ = pₖ/(Dₖ·tₖ₊₁)
// and where t grows much, L'ᵣₖ = (tₖ/tₖ₊₁)·Lᵣₖ + bₖ·(x − Σ_{c<k} pc·Lc)ᵣ, which is the same and does
// not cancel (the composite t-method of Fletcher and Powell, 1974, for w > 0). A'⁻¹x solves
// L'ᵀy = t₀·b, since L'⁻¹x = p·t₀/t and 1/D' is as above.
double grow(double* lower, double* r, std::size_t d, double* x, double w, double* u) {
    const std::size_t stride = padded(d);
    const double start = 1.0 / w;
    double before = 0.0;  // Σ pₖ²/Dₖ by itself: t loses it where w is tiny
    double t = start;
    for (std::size_t k = 0; k < d; ++k) {
        const double p = x[k];
        const double q = p * r[k];
        before += p * q;
        const double next = start + before;
        const double inverse = 1.0 / next;
        const double b = q * inverse;
        const double kept = t * inverse;
        u[k] = start * b;
        r[k] *= kept;
        const bool grows = next > 4.0 * t;
        t = next;
        const Lanes ps = broadcast(p), bs = broadcast(b);
        const Lanes scale = broadcast(grows ? kept : 1.0);
        double* column = lower + k * stride;
        std::size_t c = (k + 1) / 4 * 4;
        if (c <= k) {  // the lanes that hold the diagonal: nothing up to it changes
            const Lanes l = load(column + c), old = load(x + c);
            const Lanes rest = old - ps * l;
            store(x + c, rest);
            const Lanes added = bs * ((grows ? old : rest) * load(kBelow[k - c]));
            store(column + c, scale * l + added);
            c += kLanes;
        }
        for (; c < stride; c += kLanes) {
            const Lanes l = load(column + c), old = load(x + c);
            const Lanes rest = old - ps * l;
            store(x + c, rest);
            store(column + c, scale * l + bs * (grows ? old : rest));
        }
    }
    for (std::size_t k = d; k < stride; ++k) u[k] = 0.0;
    return before;
}

void factor(double* a, double* r, std::size_t d, double least) {
    const std::size_t stride = padded(d);
    for (std::size_t j = 0; j < d; ++j) {
        double* column = a + j * stride;
        const std::size_t first = j / 4 * 4;
        // what rounding leaves of a column that the others explain
        const double noise = 2.3e-16 * static_cast<double>(d) * column[j];
        // take off what earlier columns explain: a_:j −= Σ_k (L_jk·D_k)·L_:k, four columns at once
        std::size_t k = 0;
        for (; k + 4 <= j; k += 4) {
            const double* l0 = a + k * stride;
            const double* l1 = l0 + stride;
            const double* l2 = l1 + stride;
            const double* l3 = l2 + stride;
            const Lanes f0 = broadcast(l0[j] / r[k]), f1 = broadcast(l1[j] / r[k + 1]);
            const Lanes f2 = broadcast(l2[j] / r[k + 2]), f3 = broadcast(l3[j] / r[k + 3]);
            for (std::size_t c = first; c < stride; c += kLanes) {
                const Lanes taken = (f0 * load(l0 + c) + f1 * load(l1 + c)) +
                                    (f2 * load(l2 + c) + f3 * load(l3 + c));
                store(column + c, load(column + c) - taken);
            }
        }
        for (; k < j; ++k) {
            const double* l0 = a + k * stride;
            const Lanes f0 = broadcast(l0[j] / r[k]);
            for (std::size_t c = first; c < stride; c += kLanes) {
                store(column + c, load(column + c) - f0 * load(l0 + c));
            }
        }
        const double floor = noise > least ? noise : least;
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
    Lanes most = broadcast(0.0);
    for (std::size_t row = 0; row < rows; row += 4 * kLanes) {
        Lanes z0 = broadcast(0.0), z1 = z0, z2 = z0, z3 = z0;
        Lanes m0 = z0, m1 = z0, m2 = z0, m3 = z0;
        for (std::size_t c = 0; c < d; ++c) {
            const double* column = x + c * kBlock + row;
            const Lanes t = broadcast(theta[c]), a = broadcast(away[c]);
            const Lanes x0 = load(column), x1 = load(column + 4);
            const Lanes x2 = load(column + 8), x3 = load(column + 12);
            z0 += x0 * t;
            z1 += x1 * t;
            z2 += x2 * t;
            z3 += x3 * t;
            m0 += x0 * a;
            m1 += x1 * a;
            m2 += x2 * a;
            m3 += x3 * a;
        }
        store(z + row, z0);
        store(z + row + 4, z1);
        store(z + row + 8, z2);
        store(z + row + 12, z3);
        most = greater_of(most, greater_of(magnitude(m0), magnitude(m1)));
        most = greater_of(most, greater_of(magnitude(m2), magnitude(m3)));
    }
    return largest(most);
}

double weigh(const double* seen, std::size_t rows, double* z, double* positive) {
    const Lanes one = broadcast(1.0);
    Lanes least = broadcast(0.25);
    for (std::size_t row = 0; row < rows; row += kLanes) {
        const Lanes at = load(z + row), n = load(seen + row);
        const Lanes e = exp_of_negative(broadcast(0.0) - magnitude(at));
        const Lanes inverse = one / (one + e);
        const Lanes far = e * inverse;  // 1 − μ(z) for z ≥ 0, μ(z) below: neither loses digits
        const Lanes slope = far * inverse;
        const Lanes yes = load(positive + row);
        store(positive + row, where_negative(at, n * far - yes, (n - yes) - n * far));
        store(z + row, n * slope);
        least = less_of(least, slope);
    }
    return 0.0 - largest(broadcast(0.0) - least);
}

void add_gradient(const double* x, std::size_t rows, std::size_t d, const double* error,
                  double* gradient) {
    std::size_t c = 0;
    for (; c + 4 <= d; c += 4) {
        const double* column = x + c * kBlock;
        Lanes s0 = broadcast(0.0), s1 = s0, s2 = s0, s3 = s0;
        for (std::size_t row = 0; row < rows; row += kLanes) {
            const Lanes e = load(error + row);
            s0 += e * load(column + row);
            s1 += e * load(column + kBlock + row);
            s2 += e * load(column + 2 * kBlock + row);
            s3 += e * load(column + 3 * kBlock + row);
        }
        gradient[c] += sum(s0);
        gradient[c + 1] += sum(s1);
        gradient[c + 2] += sum(s2);
        gradient[c + 3] += sum(s3);
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
    const std::size_t stride = padded(d);
    alignas(64) double weighted[2][kBlock];
    // tiles of two columns of h by four rows: eight sums that do not wait for each other
    for (std::size_t c = 0; c < d; c += 2) {
        const std::size_t second = c + 1 < d ? c + 1 : c;
        for (std::size_t row = 0; row < rows; row += kLanes) {
            const Lanes w = load(weight + row);
            store(weighted[0] + row, w * load(x + c * kBlock + row));
            store(weighted[1] + row, w * load(x + second * kBlock + row));
        }
        for (std::size_t i = c / 4 * 4; i < d; i += 4) {
            const std::size_t last = d - 1;
            const double* x0 = x + i * kBlock;
            const double* x1 = x + (i + 1 < d ? i + 1 : last) * kBlock;
            const double* x2 = x + (i + 2 < d ? i + 2 : last) * kBlock;
            const double* x3 = x + (i + 3 < d ? i + 3 : last) * kBlock;
            Lanes s0 = broadcast(0.0), s1 = s0, s2 = s0, s3 = s0;
            Lanes t0 = s0, t1 = s0, t2 = s0, t3 = s0;
            for (std::size_t row = 0; row < rows; row += kLanes) {
                const Lanes w0 = load(weighted[0] + row), w1 = load(weighted[1] + row);
                const Lanes y0 = load(x0 + row), y1 = load(x1 + row);
                const Lanes y2 = load(x2 + row), y3 = load(x3 + row);
                s0 += w0 * y0;
                s1 += w0 * y1;
                s2 += w0 * y2;
                s3 += w0 * y3;
                t0 += w1 * y0;
                t1 += w1 * y1;
                t2 += w1 * y2;
                t3 += w1 * y3;
            }
            // entries above the diagonal and beyond d are sums that nobody reads
            double* column = h + c * stride + i;
            const double left[4] = {sum(s0), sum(s1), sum(s2), sum(s3)};
            store(column, load(column) + load(left));
            if (second != c) {
                const double right[4] = {sum(t0), sum(t1), sum(t2), sum(t3)};
                store(column + stride, load(column + stride) + load(right));
            }
        }
    }
}

double largest_norm(const double* x, std::size_t rows, std::size_t d, const double* lower,
                    const double* r, double* work) {
    const std::size_t stride = padded(d);
    Lanes most = broadcast(0.0);
    for (std::size_t row = 0; row < rows; row += 16) {
        Lanes n0 = broadcast(0.0), n1 = n0, n2 = n0, n3 = n0;
        for (std::size_t k = 0; k < d; ++k) {
            const double* column = x + k * kBlock + row;
            Lanes p0 = load(column), p1 = load(column + 4);
            Lanes p2 = load(column + 8), p3 = load(column + 12);
            for (std::size_t c = 0; c < k; ++c) {
                const Lanes l = broadcast(lower[c * stride + k]);
                const double* before = work + c * 16;
                p0 -= l * load(before);
                p1 -= l * load(before + 4);
                p2 -= l * load(before + 8);
                p3 -= l * load(before + 12);
            }
            double* here = work + k * 16;
            store(here, p0);
            store(here + 4, p1);
            store(here + 8, p2);
            store(here + 12, p3);
            const Lanes rk = broadcast(r[k]);
            n0 += rk * p0 * p0;
            n1 += rk * p1 * p1;
            n2 += rk * p2 * p2;
            n3 += rk * p3 * p3;
        }
        most = greater_of(most, greater_of(greater_of(n0, n1), greater_of(n2, n3)));
    }
    return largest(most);
}

}  // namespace

const Kernels& table(const char* name) {
    static Kernels kernels = {name,    dot,   forward,      backward,    weighted_square, grow, factor,
                              project, weigh, add_gradient, add_hessian, largest_norm};
    return kernels;
}

}  // namespace stopwise::STOPWISE_KERNELS
