//! The order in which expressions can be worked out.

use std::collections::HashMap;

use super::ExpExpression;
use crate::error::QueryError;

/// Puts every expression after those that it uses.
pub(super) fn in_order(expressions: Vec<ExpExpression>) -> Result<Vec<ExpExpression>, QueryError> {
    let places: HashMap<String, usize> =
        expressions.iter().enumerate().map(|(i, e)| (e.id.clone(), i)).collect();
    // How many expressions each one still waits for, and who waits for it.
    let mut waits = vec![0_usize; expressions.len()];
    let mut waiting: Vec<Vec<usize>> = vec![Vec::new(); expressions.len()];
    for (i, expression) in expressions.iter().enumerate() {
        for used in expression.program.variables.iter().filter_map(|name| places.get(name)) {
            if *used == i {
                return Err(QueryError::failed(format!(
                    "Self referencing expression found: {}",
                    expression.id
                )));
            }
            if let (Some(count), Some(list)) = (waits.get_mut(i), waiting.get_mut(*used)) {
                *count += 1;
                list.push(i);
            }
        }
    }
    let mut ready: Vec<usize> =
        (0..waits.len()).rev().filter(|i| waits.get(*i) == Some(&0)).collect();
    let mut order = Vec::with_capacity(expressions.len());
    while let Some(next) = ready.pop() {
        order.push(next);
        for i in waiting.get(next).into_iter().flatten() {
            if let Some(count) = waits.get_mut(*i) {
                *count -= 1;
                if *count == 0 {
                    ready.push(*i);
                }
            }
        }
    }
    if let Some(stuck) = waits.iter().position(|count| *count > 0) {
        let id = expressions.get(stuck).map(|e| e.id.as_str()).unwrap_or_default();
        return Err(QueryError::failed(format!("Circular reference found: {id}")));
    }
    let mut slots: Vec<Option<ExpExpression>> = expressions.into_iter().map(Some).collect();
    Ok(order.into_iter().filter_map(|i| slots.get_mut(i).and_then(Option::take)).collect())
}
