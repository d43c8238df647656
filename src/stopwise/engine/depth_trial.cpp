#include "depth_trial.h"

#include <algorithm>
#include <cmath>

namespace stopwise {

namespace {

// significance required of a fixed depth, in standard deviations
constexpr double kSignificance = 3.0;
constexpr std::int64_t kFirstTrial = 64;  // rounds before the first trial

}  // namespace

void DepthTrial::advance(std::int64_t rounds, const PendingLabels& requests) {
    if (rounds < kFirstTrial || (rounds & (rounds - 1)) != 0) return;
    fixed_ = fixed_ ? std::nullopt : better_depth(requests);
    sums_ = {std::vector<Depth>(config_->n_arms), 0.0};
    requested_ = answered_ = 0;
    since_ = rounds;
}

void DepthTrial::add_costs(std::size_t rule_stop) {
    for (std::size_t k = 0; k < config_->n_arms; ++k) {
        sums_.depths[k].cost += config_->gap(rule_stop, k);
    }
}

void DepthTrial::learn(const LabelRequest& request, std::size_t n, std::size_t rule_stop,
                       const unsigned char* right) {
    if (request.round < since_) return;  // belongs to an earlier trial
    ++answered_;
    const std::size_t stop = std::min(rule_stop, n - 1);
    std::vector<int> losses(n, 0);
    for (std::size_t k = 0; k < n; ++k) {
        losses[k] = (right[stop] != 0 ? 1 : 0) - (right[k] != 0 ? 1 : 0);
    }
    add_label(sums_, request, stop, losses);
}

// A missing or late label counts as the worst possible one for a fixed depth: that the rule was
// right. With all labels, the sums are unbiased (docs/labels-method.md).
std::optional<std::size_t> DepthTrial::better_depth(const PendingLabels& requests) const {
    Sums sums = sums_;
    std::int64_t answered = answered_;
    for (const PendingLabel& label : requests.pending()) {
        if (label.request.round < since_) continue;
        std::vector<int> losses(label.arms, 0);
        for (std::size_t k = 0; k < label.arms; ++k) {
            if (k == label.rule_stop) continue;
            const auto [i, j] = std::minmax(k, label.rule_stop);
            losses[k] = label.differ[config_->pair(i, j)];
        }
        add_label(sums, label.request, label.rule_stop, losses);
        ++answered;
    }
    if (answered_ == 0 || answered < requested_) return std::nullopt;  // some requests were dropped
    std::optional<std::size_t> best;
    double best_bound = 0.0;
    for (std::size_t k = 0; k < config_->n_arms; ++k) {
        const Depth& depth = sums.depths[k];
        const double deviation = std::sqrt(depth.variance + sums.heaviest * sums.heaviest);
        const double upper_bound = depth.cost + (depth.errors + kSignificance * deviation);
        if (upper_bound < best_bound) {
            best_bound = upper_bound;
            best = k;
        }
    }
    return best;
}

void DepthTrial::add_label(Sums& sums, const LabelRequest& request, std::size_t rule_stop,
                       const std::vector<int>& losses) {
    sums.heaviest = std::max(sums.heaviest, 1.0 / request.probability);
    for (std::size_t k = 0; k < losses.size(); ++k) {
        const double probability = k > rule_stop ? request.explored : request.probability;
        if (losses[k] == 0 || probability == 0.0) continue;
        const double weight = 1.0 / probability;
        sums.depths[k].errors += losses[k] > 0 ? weight : -weight;
        sums.depths[k].variance += weight * weight;
    }
}

void DepthTrial::serialize(Archive& archive) {
    for (std::int64_t* n : {&requested_, &answered_, &since_}) {
        archive.count(*n, kMaxCount, "number of labels");
    }
    bool is_fixed = fixed_.has_value();
    std::size_t arm = fixed_.value_or(0);
    archive.count(is_fixed, 1, "fixed depth flag");
    archive.count(arm, static_cast<std::int64_t>(config_->last()), "arm index");
    if (archive.reading()) fixed_ = is_fixed ? std::optional(arm) : std::nullopt;
    for (Depth& depth : sums_.depths) {
        archive.between(&depth.cost, 1, -1e100, 1e100, "cost of a depth");
        archive.between(&depth.errors, 1, -1e100, 1e100, "errors of a depth");
        archive.between(&depth.variance, 1, 0.0, 1e100, "variance");
    }
    archive.between(&sums_.heaviest, 1, 0.0, 1e100, "weight");
}

}  // namespace stopwise
