// With forgetting: summaries of old rows, which are many but have little weight. In their place, a
// pass over the history uses quadratics while their error is provably small relative to the error
// that the pass leaves; otherwise it reads the rows again (docs/certificate-updates.md, step 11).
#pragma once

#include "rows.h"

namespace stopwise {

class OldRows {
public:
    OldRows(std::size_t d, double ridge, double rate);

    // Old rows are those of rounds before this one; −∞ if there are none.
    double until() const { return parts_.empty() ? -kInfinity : parts_.back().until; }

    // Before a pass at ``point`` that is expected to leave this decrement and shift, mark the parts
    // to read again; return whether there are any.
    bool review(const Numbers& point, double now, double decrement, double shift);
    void clear() { parts_.clear(); }

    // Read the marked parts, and rows that have become old, at ``point``. Returns the largest
    // change of their logits since the previous point ``before`` of H.
    double read(const Source& source, const Numbers& point, const Numbers& before, Effort& effort);

    // Add the summaries at a point to a gradient and, unless null, to a Hessian; return the
    // smallest μ' in the Hessian.
    double add_to(const Numbers& point, double now, Numbers& gradient, Numbers* hessian);

    // Update the bounds of all parts for a new H that contains them.
    void compare(const Source& source, const Factor& hessian);
    // Update the error bounds for a new point of the gradient.
    void move_to(const Numbers& point, double now);

    double error() const { return error_; }  // of the gradient at the point, in the norm of H⁻¹
    double shift() const { return shift_; }  // the true H at the point is within e^{±shift} of H

    // The reach of the old rows for a given H.
    double reach(const Factor& hessian) const;

    std::size_t nbytes() const;
    void serialize(Archive& archive, double min_eigenvalue, double max_eigenvalue);

private:
    struct Part {
        Part(std::size_t d, double ridge, double since, double until)
            : since(since), until(until), hessian(d, ridge) {}

        double since, until;       // range of rounds
        double read = 0.0;         // rounds learned when it was last read
        Quadratic sum;             // with weights as of ``now`` rounds
        double now = 0.0;
        bool marked = true;        // to be read
        double share = 1.0;        // s with H_part ≼ s·H
        Factor hessian;            // H when it was last read, …
        double reach = 0.0;        // … and the largest ‖φ_s‖ in the norm of its inverse
        double error = 0.0, shift = 0.0;
    };
    void update_error(Part& part, const Numbers& point, double now) const;

    std::size_t d_;
    double ridge_, rate_;
    std::vector<Part> parts_;  // oldest first
    double error_ = 0.0, shift_ = 0.0;
};

}  // namespace stopwise
