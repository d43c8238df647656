#include "estimates.h"

#include <algorithm>
#include <cmath>

namespace stopwise {

namespace {

constexpr double kMaxSquareNorm = 1.01;  // ‖φ‖² ≤ 1, with a margin for rounding

}  // namespace

Estimates::Estimates(std::shared_ptr<const Config> config)
    : config_(std::move(config)),
      history_(config_->n_arms, config_->width, config_->answered_from(), config_->rate) {
    std::size_t widest = 0;
    for (const Scope& scope : config_->grams) {
        grams_.push_back({Factor(scope.dim, std::max(config_->rule->lam(), kGramFloor))});
        if (config_->rate > 0.0) grams_.back().sums.assign(scope.dim * padded(scope.dim), 0.0);
        widest = std::max(widest, padded(scope.dim));
    }
    for (const std::size_t g : config_->questions) {
        models_.emplace_back(config_->grams[g].dim, config_->precision, config_->rate);
    }
    phi_.assign(widest, 0.0);
}

// The sum of the weights of all rounds: their number, or Σ_k e^{−rate·k}.
double Estimates::effective_rounds() const {
    const auto n = static_cast<double>(rounds_);
    const auto one_minus_exp = [](double x) {  // 1 − e⁻ˣ, also for small x
        return x < 1e-5 ? x * (1.0 - x / 2.0 + x * x / 6.0) : 1.0 - exp(-x);
    };
    if (config_->rate == 0.0) return n;
    return one_minus_exp(config_->rate * n) / one_minus_exp(config_->rate);
}

double Estimates::radius(std::size_t question) const {
    return config_->rule->radius(gram_of(question).count, effective_rounds(), config_->n_features);
}

double Estimates::gram_norm(std::size_t g, const double* phi, double* work) const {
    const Gram& gram = grams_[g];
    if (gram.count == 0.0 && config_->rule->lam() == 0.0) return kInfinity;
    return std::sqrt(gram.factor.square_norm(phi, work));
}

void Estimates::advance() {
    if (config_->rate == 0.0) return;
    const auto now = static_cast<double>(rounds_);
    for (std::size_t g = 0; g < grams_.size(); ++g) {
        if (grams_[g].now != now) forget(grams_[g], config_->grams[g].dim, nullptr, now);
    }
    for (Model& model : models_) model.advance(now);
}

// Decay V to ``now``, add a row unless null, and factor V if anything reads it. The initial
// multiple of I does not decay.
void Estimates::forget(Gram& gram, std::size_t d, const double* phi, double now) const {
    const double share = exp(-config_->rate * (now - gram.now));
    const std::size_t stride = padded(d);
    gram.now = now;
    gram.count = share * gram.count + (phi != nullptr ? 1.0 : 0.0);
    for (std::size_t c = 0; c < d; ++c) {
        for (std::size_t r = c; r < d; ++r) {
            double& sum = gram.sums[c * stride + r];
            sum = share * sum + (phi != nullptr ? phi[c] * phi[r] : 0.0);
        }
    }
    if (config_->rule->reads_gram() || (!config_->forced_rounds && !explored_)) {
        gram.factor = factored(gram.sums, d);
    }
}

Factor Estimates::factored(const Numbers& sums, std::size_t d) const {
    const double base = std::max(config_->rule->lam(), kGramFloor);
    Factor factor(d, base);
    Numbers matrix = sums;
    for (std::size_t c = 0; c < d; ++c) matrix[c * padded(d) + c] += base;
    factor.take(matrix, base);
    return factor;
}

Factor Estimates::gram(std::size_t question) const {
    const Gram& gram = gram_of(question);
    return config_->rate > 0.0 ? factored(gram.sums, config_->scope_of(question).dim) : gram.factor;
}

void Estimates::learn(const double* row, std::size_t stop, const unsigned char* answers) {
    if (stop >= config_->grams[0].from) {  // otherwise too short for any model to learn from
        history_.append(stored_row(row, stop).data(), stop, answers, rounds_);
        const double now = static_cast<double>(rounds_) + 1.0;
        for (std::size_t g = 0; g < grams_.size(); ++g) {
            const Scope& scope = config_->grams[g];
            std::copy_n(row + scope.offset, scope.dim, phi_.begin());
            std::fill(phi_.begin() + static_cast<std::ptrdiff_t>(scope.dim), phi_.end(), 0.0);
            if (scope.arm <= stop && config_->rate > 0.0) {
                forget(grams_[g], scope.dim, phi_.data(), now);
            } else if (scope.arm <= stop) {
                grams_[g].factor.add(phi_.data(), 1.0);
                grams_[g].count += 1.0;
            }
            for (std::size_t k = 0; scope.from <= stop && k < models_.size(); ++k) {
                if (config_->questions[k] == g) models_[k].learn(phi_.data(), answers[k] != 0, now);
            }
        }
    }
    if (config_->most_rows && history_.single_rows() > *config_->most_rows) summarise_old_rows();
}

const std::vector<double>& Estimates::stored_row(const double* row, std::size_t stop) {
    row_.assign(row, row + config_->width);
    for (std::size_t g = 0; g < grams_.size(); ++g) {
        const Scope& scope = config_->grams[g];
        // the first V with the same features belongs to the earliest arm
        if (scope.from > stop && (g == 0 || config_->grams[g - 1].offset != scope.offset)) {
            std::fill_n(row_.begin() + static_cast<std::ptrdiff_t>(scope.offset), scope.dim, 0.0);
        }
    }
    return row_;
}

void Estimates::summarise_old_rows() {
    const double now = static_cast<double>(rounds_) + 1.0;
    for (std::size_t k = 0; k < models_.size(); ++k) models_[k].summarise(source(k, now), effort_);
    history_.drop_old();
}

void Estimates::count_round() {
    ++rounds_;
    if (config_->forced_rounds || explored_) return;
    const double level = config_->rule->min_eigenvalue() * (1.0 - 1e-9);  // V has rounding errors
    explored_ = std::all_of(grams_.begin(), grams_.end(),
                            [&](const Gram& gram) { return gram.factor.exceeds(level); });
}

void Estimates::refine(std::size_t question, bool fresh_hessian, bool cautious) {
    const auto now = static_cast<double>(rounds_);
    models_[question].refine(source(question, now), fresh_hessian, cautious, effort_);
}

bool Estimates::solve(std::vector<Model>& models, Effort& effort) const {
    const auto now = static_cast<double>(rounds_);
    bool converged = true;
    for (std::size_t k = 0; k < models.size(); ++k) {
        const bool solved = models[k].solve(source(k, now), config_->rule->reads_hessian(), effort);
        converged = converged && solved;
    }
    return converged;
}

std::vector<double> Estimates::theta(std::size_t question) const {
    Model model = models_[question];
    Effort effort;
    if (!model.solve(source(question, static_cast<double>(rounds_)), false, effort)) return {};
    const auto begin = model.estimate().begin();
    return {begin, begin + static_cast<std::ptrdiff_t>(config_->scope_of(question).dim)};
}

std::size_t Estimates::nbytes() const {
    std::size_t n = history_.nbytes();
    for (const Gram& gram : grams_) n += gram.factor.nbytes() + gram.sums.size() * sizeof(double);
    for (const Model& model : models_) n += model.nbytes();
    return n;
}

void Estimates::serialize(Archive& archive) {
    archive.count(rounds_, kMaxCount, "number of rounds");
    archive.count(explored_, 1, "exploration flag");
    for (std::int64_t* n :
         {&effort_.passes, &effort_.hessians, &effort_.rows_visited, &effort_.settled}) {
        archive.count(*n, kMaxCount, "number of passes");
    }
    history_.serialize(archive, rounds_, kMaxFeature, config_->most_rows.has_value());
    for (std::size_t g = 0; g < grams_.size(); ++g) serialize_gram(g, archive);
    for (std::size_t k = 0; k < models_.size(); ++k) {
        models_[k].serialize(archive, history_.observations(config_->scope_of(k).from),
                             kMaxSquareNorm, history_.dropped(0) > 0.0);
    }
}

void Estimates::serialize_gram(std::size_t g, Archive& archive) {
    Gram& gram = grams_[g];
    const Scope& scope = config_->grams[g];
    if (config_->rate > 0.0) {
        const double max_count = 1.0 + 1.0 / config_->rate;  // including dropped rows
        archive.between(&gram.count, 1, 0.0, max_count, "number of observations");
        const double max_sum = kMaxSquareNorm * max_count;
        archive.between(gram.sums.data(), gram.sums.size(), -max_sum, max_sum, "sum");
        archive.between(&gram.now, 1, 0.0, static_cast<double>(rounds_), "number of rounds");
        if (archive.reading()) gram.factor = factored(gram.sums, scope.dim);
        return;
    }
    const double n = history_.observations(scope.arm);
    const double base = std::max(config_->rule->lam(), kGramFloor);
    archive.between(&gram.count, 1, n, n, "number of observations");
    gram.factor.serialize(archive, base, base + kMaxSquareNorm * n);
}

}  // namespace stopwise
