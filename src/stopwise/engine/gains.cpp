#include "gains.h"

namespace stopwise {

void Gains::create() {
    if (!gains_.empty()) return;
    for (const std::size_t g : plan_->questions) {
        gains_.emplace_back(plan_->grams[g].dim, plan_->grams[g].linear, plan_->precision);
    }
}

template <class Function>
void Gains::each_disagreement(const WaitingLabel& label, Function function) {
    create();
    for (std::size_t j = 1; j < label.arms; ++j) {
        for (std::size_t i = 0; i < j; ++i) {
            const std::size_t k = plan_->pair(i, j);
            if (label.differ[k] == 0) continue;
            function(gains_[k], label.row.data() + plan_->scope_of(k).offset);
        }
    }
}

void Gains::learn(const double* row, std::size_t n, const unsigned char* right,
                  const unsigned char* differ) {
    create();
    for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t j = i + 1; j < n; ++j) {
            const std::size_t k = plan_->pair(i, j);
            if (differ[k] == 0) continue;
            const double gain = (right[j] != 0 ? 1.0 : 0.0) - (right[i] != 0 ? 1.0 : 0.0);
            gains_[k].learn(row + plan_->scope_of(k).offset, gain);
        }
    }
}

void Gains::add_missing(const WaitingLabel& label) {
    each_disagreement(label, [](Gain& gain, const double* phi) { gain.add_missing(phi); });
}

void Gains::remove_missing(const WaitingLabel& label) {
    each_disagreement(label, [](Gain& gain, const double* phi) { gain.remove_missing(phi); });
}

void Gains::refit() {
    create();
    for (Gain& gain : gains_) gain.refit();
}

std::size_t Gains::nbytes() const {
    std::size_t n = 0;
    for (const Gain& gain : gains_) n += gain.nbytes();
    return n;
}

void Gains::archive(Archive& with) {
    bool any = !gains_.empty();
    with.count(any, plan_->rule->takes_labels() ? 1 : 0, "whether it has labels");
    if (any && with.reading()) create();
    for (Gain& gain : gains_) gain.archive(with);
}

bool Gains::hold(const WaitingLabels& requests) const {
    if (!requests.waiting().empty() && gains_.empty()) return false;
    std::vector<std::int64_t> missing(gains_.size(), 0);
    for (const WaitingLabel& label : requests.waiting()) {
        if (!label.missing) continue;
        for (std::size_t k = 0; k < missing.size(); ++k) missing[k] += label.differ[k];
    }
    for (std::size_t k = 0; k < missing.size(); ++k) {
        if (missing[k] > gains_[k].missing()) return false;
    }
    return true;
}

}  // namespace stopwise
