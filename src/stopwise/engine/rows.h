// The rows of a model in the history, and sums over them.
#pragma once

#include "factor.h"
#include "history.h"

namespace stopwise {

// Work done for exact decisions.
struct Effort {
    std::int64_t passes = 0, hessians = 0, rows_visited = 0;
    std::int64_t settled = 0;  // decisions without a certificate (docs/certificate.md)
};

struct Source {
    const History& history;
    std::size_t question;
    const Scope& scope;
    double now;  // rounds learned

    // Call ``visit(block, features, number of rows)`` for every block of rounds from ``since`` to
    // ``until``, or for every block that `History::drop_old` will drop.
    template <class Visit>
    void each_block(Visit&& visit, double since = -kInfinity, double until = kInfinity) const {
        history.each_block(scope.from, with_features(visit), since, until);
    }
    template <class Visit>
    void each_old_block(Visit&& visit) const {
        history.each_old_block(scope.from, with_features(visit));
    }
    // The largest φᵀA⁻¹φ of these rows.
    double largest_square_norm(const Factor& a, double since = -kInfinity,
                               double until = kInfinity) const;

private:
    template <class Visit>
    auto with_features(Visit& visit) const {
        return [&](const History::Block& block) {
            visit(block, block.x.data() + scope.offset * kBlock, visited(block.rows));
        };
    }
};

// Accumulates the gradient, the Hessian and the smallest weight μ' of rows at a point.
struct Sums {
    const Source& source;
    const Numbers &theta, &away;  // the point, and its difference to the previous point
    Numbers& gradient;            // sum
    Numbers* hessian;             // sum, the lower half by columns; or null
    double lightest = 0.25;
    double moved = 0.0;  // largest change of a logit since the previous point
    std::size_t rows = 0;

    void operator()(const History::Block& block, const double* x, std::size_t n);
};

// Quadratic approximation of the contribution of rows to L: their gradient and Hessian at a point.
struct Quadratic {
    Numbers theta, gradient, hessian;  // Hessian: lower half by columns; all empty without rows
    double lightest = 0.25;            // smallest μ' at the point

    bool empty() const { return theta.empty(); }
    // Reset to zero at a point of dimension d.
    void begin(const Numbers& point, std::size_t d);
    void scale(double share);  // multiply the weights of the rows
    // Add its gradient at a point to ``sum``; return ‖point − theta‖ in the norm of its Hessian.
    double add_gradient(const Numbers& point, Numbers& sum) const;
    // Its Hessian, d by d.
    std::vector<double> matrix() const;
    void serialize(Archive& archive, std::size_t d, std::size_t stride);
};

}  // namespace stopwise
