#include "context_values.h"

#include <algorithm>
#include <cmath>

namespace stopwise {

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
// Maximum passes over the history for one comparison; damped Newton takes tens.
constexpr int kMaxPairPasses = 40;

}  // namespace

Workspace::Workspace(const Config& config) {
    std::size_t widest = 0;
    for (const Scope& scope : config.grams) {
        phi.emplace_back(padded(scope.dim), 0.0);
        widest = std::max(widest, padded(scope.dim));
    }
    scratch.assign(widest, 0.0);
    for (std::size_t i = 0; i < config.last(); ++i) beaten_by.push_back(i + 1);
}

void Workspace::serialize(Archive& archive) {
    for (std::size_t i = 0; i < beaten_by.size(); ++i) {
        archive.count(beaten_by[i], static_cast<std::int64_t>(beaten_by.size()), "arm index");
        archive.check(beaten_by[i] > i, "arm index");
    }
}

ContextValues::ContextValues(Estimates& estimates, const std::vector<Model>& models, bool exact,
                             const PairGains& gains, const Config& config, Workspace& workspace,
                             const double* row, std::vector<double> noise)
    : estimates_(estimates), models_(models), gains_(gains), config_(config), workspace_(workspace),
      noise_(std::move(noise)), exact_(exact) {
    for (std::size_t g = 0; g < config.grams.size(); ++g) {
        std::copy_n(row + config.grams[g].offset, config.grams[g].dim, workspace.phi[g].begin());
    }
    workspace.norms.assign(config.grams.size(), -1.0);
    workspace.bonuses.assign(config.grams.size(), -1.0);
    workspace.hessian_norms.assign(config.questions.size(), {});
    workspace.gains.assign(config.n_pairs(), {kNaN, kNaN});
    workspace.refinements.assign(config.n_pairs(), 0);
}

double ContextValues::logit(std::size_t question) const {
    return models_[question].logit(phi(question));
}

double ContextValues::error(std::size_t question, double tolerance) {
    const Model& model = models_[question];
    double error = model.prior_bound() + std::fabs(logit(question));
    const double b = model.slack();
    if (error < tolerance || b == kInfinity) return error;
    error = std::min(error, b * cheap_norm(question));
    if (error < tolerance) return error;
    return std::min(error, b * hessian_norm(question));
}

// An upper bound on ‖φ‖_{H⁻¹} from ‖φ‖_{V⁻¹}, which the bonus has already computed:
// H = Σ μ'φφᵀ + ridge·I ≽ min(lightest μ', ridge/base)·(V + base·I).
double ContextValues::cheap_norm(std::size_t question) const {
    const double norm = workspace_.norms[config_.questions[question]];
    if (norm < 0.0) return kInfinity;  // the rule has not computed the bonus
    double base = std::max(config_.rule->lam(), kGramFloor);
    if (config_.rate > 0.0) {  // V may include rows that the history dropped and H does not have
        base += kDropWeight * (1.0 + 1.0 / config_.rate);
    }
    const Model& model = models_[question];
    return norm / std::sqrt(std::min(model.lightest(), model.ridge() / base));
}

double ContextValues::bonus(std::size_t question) {
    const std::size_t g = config_.questions[question];
    double& bonus = workspace_.bonuses[g];
    if (bonus < 0.0) {
        double& norm = workspace_.norms[g];
        norm = estimates_.gram_norm(g, phi(question), workspace_.scratch.data());
        bonus = norm == kInfinity ? kInfinity : radius(question) * norm;
    }
    return bonus;
}

double ContextValues::hessian_norm(std::size_t question) {
    Workspace::Norm& norm = workspace_.hessian_norms[question];
    if (norm.revision != revision_) {
        double* const scratch = workspace_.scratch.data();
        norm = {models_[question].hessian_norm(phi(question), scratch), revision_};
    }
    return norm.value;
}

double ContextValues::hessian_change(std::size_t question) const {
    return models_[question].anchored() ? models_[question].hessian_change() : kInfinity;
}

Gain::Upper ContextValues::gain(std::size_t pair) {
    if (gains_.empty()) return {1.0, 1.0};
    Gain::Upper& gain = workspace_.gains[pair];
    if (std::isnan(gain.gain)) gain = gains_.upper(pair, phi(pair));
    return gain;
}

void ContextValues::refine(std::size_t i, std::size_t j) {
    int& refinements = workspace_.refinements[pair(i, j)];
    if (refinements < kMaxPairPasses) {
        const std::size_t question = config_.rule->question_to_refine(*this, i, j);
        refine_question(question, config_.rule->reads_hessian(), refinements >= kCautiousAfter);
        ++refinements;
        return;
    }
    ++revision_;
    if (!solved_) {
        estimates_.solve();
        solved_ = true;
    } else {
        exact_ = true;
        estimates_.count_settled();
    }
}

void ContextValues::refine_question(std::size_t question, bool fresh_hessian, bool cautious) {
    estimates_.refine(question, fresh_hessian, cautious);
    ++revision_;
}

}  // namespace stopwise
