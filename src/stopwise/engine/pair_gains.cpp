#include "pair_gains.h"

namespace stopwise {

void PairGains::create() {
    if (!gains_.empty()) return;
    for (const std::size_t g : config_->questions) {
        gains_.emplace_back(config_->grams[g].dim, config_->grams[g].linear, config_->precision);
    }
}

template <class Function>
void PairGains::each_disagreement(const PendingLabel& label, Function function) {
    create();
    for (std::size_t j = 1; j < label.arms; ++j) {
        for (std::size_t i = 0; i < j; ++i) {
            const std::size_t k = config_->pair(i, j);
            if (label.differ[k] == 0) continue;
            function(gains_[k], label.row.data() + config_->scope_of(k).offset);
        }
    }
}

void PairGains::learn(const double* row, std::size_t n, const unsigned char* right,
                  const unsigned char* differ) {
    create();
    for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t j = i + 1; j < n; ++j) {
            const std::size_t k = config_->pair(i, j);
            if (differ[k] == 0) continue;
            const double gain = (right[j] != 0 ? 1.0 : 0.0) - (right[i] != 0 ? 1.0 : 0.0);
            gains_[k].learn(row + config_->scope_of(k).offset, gain);
        }
    }
}

void PairGains::add_missing(const PendingLabel& label) {
    each_disagreement(label, [](Gain& gain, const double* phi) { gain.add_missing(phi); });
}

void PairGains::remove_missing(const PendingLabel& label) {
    each_disagreement(label, [](Gain& gain, const double* phi) { gain.remove_missing(phi); });
}

void PairGains::refit() {
    create();
    for (Gain& gain : gains_) gain.refit();
}

std::size_t PairGains::nbytes() const {
    std::size_t n = 0;
    for (const Gain& gain : gains_) n += gain.nbytes();
    return n;
}

void PairGains::serialize(Archive& archive) {
    bool has_gains = !gains_.empty();
    archive.count(has_gains, config_->rule->takes_labels() ? 1 : 0, "labels flag");
    if (has_gains && archive.reading()) create();
    for (Gain& gain : gains_) gain.serialize(archive);
}

bool PairGains::contain(const PendingLabels& requests) const {
    if (!requests.pending().empty() && gains_.empty()) return false;
    std::vector<std::int64_t> missing(gains_.size(), 0);
    for (const PendingLabel& label : requests.pending()) {
        if (!label.missing) continue;
        for (std::size_t k = 0; k < missing.size(); ++k) missing[k] += label.differ[k];
    }
    for (std::size_t k = 0; k < missing.size(); ++k) {
        if (missing[k] > gains_[k].missing()) return false;
    }
    return true;
}

}  // namespace stopwise
