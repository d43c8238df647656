// The label estimates: for each pair of arms, the gain of going on where the two disagree.
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

    // Whether no label was asked for, and none came.
    bool empty() const { return gains_.empty(); }
    Gain::Upper upper(std::size_t pair, const double* phi) const { return gains_[pair].upper(phi); }

    // Learn from the label of a round in which ``n`` arms ran: which of them were right.
    void learn(const double* row, std::size_t n, const unsigned char* right,
               const unsigned char* differ);

    // Count a label as missing, or no longer. `refit` must follow.
    void add_missing(const PendingLabel& label);
    void remove_missing(const PendingLabel& label);
    void refit();

    std::size_t nbytes() const;
    void serialize(Archive& archive);
    // Whether every label that counts as missing is in the sums of its pairs, from which it is taken
    // out when it comes.
    bool hold(const PendingLabels& requests) const;

private:
    void create();
    // Call a function with the gain of each pair that disagreed, and with its features.
    template <class Function>
    void each_disagreement(const PendingLabel& label, Function function);

    std::shared_ptr<const Config> config_;
    std::vector<Gain> gains_;  // one per pair, or none while no label was asked for or came
};

}  // namespace stopwise
