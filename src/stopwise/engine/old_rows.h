// With forgetting: the rows of old rounds, which count little and are many. A pass over history reads
// quadratics in their place while what these leave out is proved to be small beside what the pass
// leaves out anyway; where it is not, it reads rows again (docs/certificate.md, step 11).
#pragma once

#include "rows.h"

namespace stopwise {

class OldRows {
public:
    OldRows(std::size_t d, double ridge, double rate);

    // They are those of rounds before this one; −∞ if there are none.
    double until() const { return parts_.empty() ? -kInfinity : parts_.back().until; }

    // Before a pass at ``point`` that leaves about this decrement and shift: mark the parts that must
    // be read again. Returns whether there are any.
    bool review(const Numbers& point, double now, double decrement, double shift);
    void clear() { parts_.clear(); }

    // Read the parts that were marked, and rows that have become old, at ``point``. Returns the most
    // that their weights changed, as a move of logits; ``before`` is where H was.
    double read(const Source& source, const Numbers& point, const Numbers& before, Effort& effort);

    // Add them at a point to a gradient and, unless null, a Hessian; return the least μ' in the latter.
    double add_to(const Numbers& point, double now, Numbers& gradient, Numbers* hessian);

    // Take note of H, which was just computed and contains them, …
    void compare(const Source& source, const Factor& hessian);
    // … and of the point where the gradient is.
    void stand_at(const Numbers& point, double now);

    double error() const { return error_; }  // of the gradient there, in the norm of H⁻¹
    double shift() const { return shift_; }  // H of all rows there is within e^{±shift} of the one stored

    // Their reach, now that H is this.
    double reach(const Factor& hessian) const;

    std::size_t nbytes() const;
    void serialize(Archive& archive, double least, double most);

private:
    struct Part {
        Part(std::size_t d, double ridge, double since, double until)
            : since(since), until(until), hessian(d, ridge) {}

        double since, until;       // its rounds
        double read = 0.0;         // how many rounds were learned when it was read
        Quadratic sum;             // as it counted after ``now`` rounds
        double now = 0.0;
        bool marked = true;        // to be read
        double share = 1.0;        // s with H_part ≼ s·H
        Factor hessian;            // H when it was read, …
        double reach = 0.0;        // … and its largest ‖φ_s‖ in the norm of the inverse
        double error = 0.0, shift = 0.0;
    };
    void judge(Part& part, const Numbers& point, double now) const;

    std::size_t d_;
    double ridge_, rate_;
    std::vector<Part> parts_;  // oldest first
    double error_ = 0.0, shift_ = 0.0;
};

}  // namespace stopwise
