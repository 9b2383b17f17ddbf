//! Dependencies between expressions.

use std::collections::HashMap;

use super::expression::ExpExpression;
use crate::error::ExpError;

/// Sorts expressions topologically, so that each follows its inputs. Cycles are an error.
pub(super) fn topological_order(
    expressions: Vec<ExpExpression>,
) -> Result<Vec<ExpExpression>, ExpError> {
    let index_of: HashMap<String, usize> =
        expressions.iter().enumerate().map(|(i, e)| (e.id.clone(), i)).collect();
    // For each expression the number of unresolved dependencies, and its dependents.
    let mut dependencies = vec![0_usize; expressions.len()];
    let mut dependents: Vec<Vec<usize>> = vec![Vec::new(); expressions.len()];
    for (i, expression) in expressions.iter().enumerate() {
        for used in expression.program.variables.iter().filter_map(|name| index_of.get(name)) {
            if *used == i {
                return Err(ExpError::SelfReference(expression.id.clone()));
            }
            if let (Some(count), Some(list)) = (dependencies.get_mut(i), dependents.get_mut(*used))
            {
                *count += 1;
                list.push(i);
            }
        }
    }
    let mut ready: Vec<usize> =
        (0..dependencies.len()).rev().filter(|i| dependencies.get(*i) == Some(&0)).collect();
    let mut order = Vec::with_capacity(expressions.len());
    while let Some(next) = ready.pop() {
        order.push(next);
        for i in dependents.get(next).into_iter().flatten() {
            if let Some(count) = dependencies.get_mut(*i) {
                *count -= 1;
                if *count == 0 {
                    ready.push(*i);
                }
            }
        }
    }
    if let Some(cyclic) = dependencies.iter().position(|count| *count > 0) {
        let id = expressions.get(cyclic).map(|e| e.id.clone()).unwrap_or_default();
        return Err(ExpError::Cycle(id));
    }
    let mut slots: Vec<Option<ExpExpression>> = expressions.into_iter().map(Some).collect();
    Ok(order.into_iter().filter_map(|i| slots.get_mut(i).and_then(Option::take)).collect())
}
