//! Batches of a client on standard streams: their answers are sent together, as one list. Pure.

use serde_json::Value;

/// Batches whose answers are not complete.
#[derive(Debug, Default)]
pub(super) struct Batches(Vec<Batch>);

#[derive(Debug)]
struct Batch {
    /// Requests without an answer.
    waiting: Vec<Value>,
    answers: Vec<Value>,
}

impl Batches {
    /// Starts a batch with the ids of its requests and the answers that exist already. Returns the
    /// whole answer if there is nothing to wait for; a batch of notifications has no answer.
    pub(super) fn start(&mut self, waiting: Vec<Value>, answers: Vec<Value>) -> Option<Value> {
        if !waiting.is_empty() {
            self.0.push(Batch { waiting, answers });
            return None;
        }
        (!answers.is_empty()).then_some(Value::Array(answers))
    }

    /// Whether a message answers a request of a batch.
    pub(super) fn is_waiting_for(&self, message: &Value) -> bool {
        let is_answer = message.get("method").is_none();
        is_answer && self.place(message).is_some()
    }

    /// Adds an answer. Returns the whole answer with the last one of a batch.
    pub(super) fn push(&mut self, message: Value) -> Option<Value> {
        let (index, at) = self.place(&message)?;
        let batch = self.0.get_mut(index)?;
        batch.waiting.remove(at);
        batch.answers.push(message);
        if !batch.waiting.is_empty() {
            return None;
        }
        Some(Value::Array(self.0.remove(index).answers))
    }

    /// This request gets no answer, because the client cancelled it.
    pub(super) fn forget(&mut self, id: &Value) -> Option<Value> {
        let index = self.0.iter().position(|batch| batch.waiting.contains(id))?;
        let batch = self.0.get_mut(index)?;
        batch.waiting.retain(|one| one != id);
        if !batch.waiting.is_empty() {
            return None;
        }
        let answers = self.0.remove(index).answers;
        (!answers.is_empty()).then_some(Value::Array(answers))
    }

    fn place(&self, message: &Value) -> Option<(usize, usize)> {
        let id = message.get("id")?;
        let places = self.0.iter().enumerate();
        let mut places = places.filter_map(|(index, batch)| {
            let at = batch.waiting.iter().position(|one| one == id)?;
            Some((index, at))
        });
        places.next()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Batches;

    #[test]
    fn answers_of_a_batch_leave_together() {
        let mut batches = Batches::default();
        assert_eq!(batches.start(vec![], vec![]), None);
        assert_eq!(batches.start(vec![], vec![json!(1)]), Some(json!([1])));
        assert_eq!(
            batches.start(vec![json!(1), json!("b")], vec![json!("no")]),
            None
        );
        let other = json!({"id": 9, "result": {}});
        let request = json!({"id": 1, "method": "roots/list"});
        assert!(!batches.is_waiting_for(&other) && !batches.is_waiting_for(&request));
        let second = json!({"id": "b", "result": {}});
        assert!(batches.is_waiting_for(&second));
        assert_eq!(batches.push(second.clone()), None);
        let first = json!({"id": 1, "result": {}});
        assert_eq!(
            batches.push(first.clone()),
            Some(json!(["no", second, first]))
        );
        assert!(!batches.is_waiting_for(&first));
    }

    #[test]
    fn a_request_that_was_cancelled_holds_nobody_up() {
        let mut batches = Batches::default();
        assert_eq!(batches.start(vec![json!(1), json!(2)], vec![]), None);
        assert_eq!(batches.forget(&json!(1)), None);
        let second = json!({"id": 2, "result": {}});
        assert_eq!(batches.push(second.clone()), Some(json!([second])));
        assert_eq!(batches.start(vec![json!(1)], vec![]), None);
        assert_eq!(batches.forget(&json!(1)), None);
        assert_eq!(batches.forget(&json!(1)), None);
    }
}
