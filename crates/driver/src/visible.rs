//! `CUDA_VISIBLE_DEVICES`: which of a machine's devices a process sees, by CUDA's rules.

/// Returns the positions of the devices that `list` names, in its order. `uuids` has the UUID of each device of the
/// machine, as "GPU-xxxxxxxx-...". The list ends before its first invalid element, and a device named twice makes it
/// empty.
///
/// Source of the rules: the CUDA C++ Programming Guide, "CUDA Environment Variables".
pub fn visible_devices(list: &str, uuids: &[String]) -> Vec<usize> {
    let mut visible = Vec::new();
    for element in list.split(',') {
        let Some(device) = device_of(element.trim(), uuids) else { break };
        if visible.contains(&device) {
            return Vec::new();
        }
        visible.push(device);
    }
    visible
}

fn device_of(element: &str, uuids: &[String]) -> Option<usize> {
    if element.starts_with("GPU-") {
        let mut matching = (0..uuids.len()).filter(|&device| uuids[device].starts_with(element));
        let first = matching.next();
        // A prefix that matches two devices selects neither.
        return if matching.next().is_none() { first } else { None };
    }
    // Like the driver, ignores what follows the digits.
    let digits = element.find(|character: char| !character.is_ascii_digit()).unwrap_or(element.len());
    element[..digits].parse().ok().filter(|device| *device < uuids.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_follow_cudas_rules() {
        let uuids = ["GPU-aa00", "GPU-aa11", "GPU-bb22", "GPU-cc33"].map(str::to_owned);
        let visible = |list| visible_devices(list, &uuids);
        assert_eq!(visible("2,0"), [2, 0]);
        assert_eq!(visible(" 1 , 3"), [1, 3]);
        assert_eq!(visible("1,-1,2"), [1]);
        assert_eq!(visible("1,9,2"), [1]);
        assert_eq!(visible("1,x"), [1]);
        assert_eq!(visible("1gpu0,0ampere"), [1, 0]);
        assert_eq!(visible("GPU-b,GPU-aa11"), [2, 1]);
        assert_eq!(visible("GPU-c,GPU-aa,0"), [3]);
        assert_eq!(visible("0,MIG-dd44"), [0]);
        for nothing in ["", "0,1,0", "1,GPU-aa1", "GPU-", "-1,0"] {
            assert!(visible(nothing).is_empty(), "{nothing}");
        }
    }
}
