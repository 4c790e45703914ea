//! What all processes of a service have in common: the unit, the container and the pod. Pure.

use fdguard_core::workload::Workload;

/// The parts that are the same in all of these; `None` if there is no such part, or no process.
#[expect(single_use_lifetimes, reason = "an anonymous one is not allowed here")]
pub(crate) fn common_workload<'a>(
    all: impl IntoIterator<Item = Option<&'a Workload>>,
) -> Option<Workload> {
    let mut all = all.into_iter();
    let mut common = all.next()??.clone();
    for other in all {
        let other = other?;
        keep_equal(&mut common.unit, &other.unit);
        keep_equal(&mut common.container, &other.container);
        keep_equal(&mut common.pod, &other.pod);
    }
    (!common.is_empty()).then_some(common)
}

fn keep_equal<T: PartialEq>(part: &mut Option<T>, other: &Option<T>) {
    if part != other {
        *part = None;
    }
}

#[cfg(test)]
mod tests {
    use fdguard_core::workload::{ContainerName, PodName, Workload};

    use super::common_workload;

    fn workload(container: &str, pod: &str) -> Workload {
        Workload {
            unit: None,
            container: Some(ContainerName {
                id: container.to_owned(),
                ..ContainerName::default()
            }),
            pod: Some(PodName {
                uid: pod.to_owned(),
                ..PodName::default()
            }),
        }
    }

    #[test]
    fn only_what_is_the_same_in_all_processes_is_kept() {
        let (app, sidecar, other) = (workload("a", "1"), workload("b", "1"), workload("c", "2"));
        let common = |all: &[&Workload]| common_workload(all.iter().map(|one| Some(*one)));
        assert_eq!(common(&[&app, &app]), Some(app.clone()));
        let pod = common(&[&app, &sidecar]).unwrap();
        assert_eq!((pod.container, pod.pod), (None, app.pod.clone()));
        assert_eq!(common(&[&app, &other]), None);
        assert_eq!(common_workload([Some(&app), None]), None);
        assert_eq!(common_workload([]), None);
    }
}
