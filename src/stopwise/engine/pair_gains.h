// The label estimates of all pairs of arms (gain.h).
#pragma once

#include <memory>
#include <vector>

#include "gain.h"
#include "pending_labels.h"
#include "config.h"

namespace stopwise {

class PairGains {
public:
    explicit PairGains(std::shared_ptr<const Config> config) : config_(std::move(config)) {}

    // Whether no label was requested or received.
    bool empty() const { return gains_.empty(); }
    Gain::Upper upper(std::size_t pair, const double* phi) const { return gains_[pair].upper(phi); }

    // Learn which of the ``n`` arms that ran in a round were right.
    void learn(const double* row, std::size_t n, const unsigned char* right,
               const unsigned char* differ);

    // Count a label as missing, or stop counting it. Call `refit` afterwards.
    void add_missing(const PendingLabel& label);
    void remove_missing(const PendingLabel& label);
    void refit();

    std::size_t nbytes() const;
    void serialize(Archive& archive);
    // Whether every missing label is in the sums of its pairs, from which it is removed when it
    // arrives.
    bool contain(const PendingLabels& requests) const;

private:
    void create();
    // Call ``function(gain, features)`` for each pair that disagreed.
    template <class Function>
    void each_disagreement(const PendingLabel& label, Function function);

    std::shared_ptr<const Config> config_;
    std::vector<Gain> gains_;  // one per pair; empty until a label is requested or received
};

}  // namespace stopwise
