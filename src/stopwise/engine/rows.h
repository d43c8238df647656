// Where a model's rows are, and sums over them.
#pragma once

#include "factor.h"
#include "history.h"

namespace stopwise {

// What exactness has cost so far.
struct Effort {
    std::int64_t passes = 0, hessians = 0, rows_visited = 0;
    std::int64_t settled = 0;  // decisions without a certificate (docs/certificate.md)
};

struct Source {
    const History& history;
    std::size_t question;
    const Scope& scope;
    double now;  // rounds learned

    // Call ``visit(block, its features, its rows to visit)`` for every block, or for those of rounds
    // from ``since`` to ``until``, or for those that `History::drop_old` will drop.
    template <class Visit>
    void each_block(Visit&& visit, double since = -kEver, double until = kEver) const {
        history.each_block(scope.from, with_features(visit), since, until);
    }
    template <class Visit>
    void each_old_block(Visit&& visit) const {
        history.each_old_block(scope.from, with_features(visit));
    }
    // The largest φᵀA⁻¹φ of these rows.
    double largest_square_norm(const Factor& a, double since = -kEver, double until = kEver) const;

private:
    template <class Visit>
    auto with_features(Visit& visit) const {
        return [&](const History::Block& block) {
            visit(block, block.x.data() + scope.offset * kBlock, visited(block.rows));
        };
    }
};

// The gradient, the Hessian and the least weight μ' of rows at a point, block by block.
struct Sums {
    const Source& source;
    const Numbers &theta, &away;  // the point, and from where it was moved, as a difference
    Numbers& gradient;            // to be added to
    Numbers* hessian;             // likewise, its lower half by columns; or null
    double least = 0.25;
    double moved = 0.0;  // the most that any logit moved
    std::size_t rows = 0;

    void operator()(const History::Block& block, const double* x, std::size_t n);
};

// What rows contribute to L, as a quadratic: their gradient and Hessian at a point.
struct Quadratic {
    Numbers theta, gradient, hessian;  // the lower half, by columns; all empty if there are no rows
    double lightest = 0.25;            // the least μ' at the point

    bool empty() const { return theta.empty(); }
    // Become that of no rows, around a point of d numbers.
    void begin(const Numbers& at, std::size_t d);
    void scale(double share);  // by what rows have lost of their weight
    // Add its gradient at a point to ``sum``; return ‖point − theta‖ in the norm of its Hessian.
    double add_gradient(const Numbers& at, Numbers& sum) const;
    // Its Hessian, d by d.
    std::vector<double> matrix() const;
    void archive(Archive& with, std::size_t d, std::size_t stride);
};

}  // namespace stopwise
