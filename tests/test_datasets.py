"""Data helpers: exact probabilities, noise within groups, splits class by class."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal

from sksetvalued.datasets import (
    corrupt_labels,
    load_plantnet300k,
    long_tail_indices,
    make_ambiguous_classification,
    train_val_test_indices,
)

GROUPS = np.arange(20) // 5


class TestMakeAmbiguousClassification:
    def test_p_is_the_posterior_of_the_mixture_that_was_drawn(self):
        """Centres found again as class means reproduce p by Bayes' rule."""
        weights = np.arange(1, 5)
        X, y, p, _ = make_ambiguous_classification(
            200_000, 2, 4, group_size=2, ambiguity=0.5, class_weights=weights, random_state=0
        )
        centers = [X[y == c].mean(axis=0) for c in range(4)]
        joint = np.stack([multivariate_normal(c).pdf(X[:500]) for c in centers], 1) * weights
        np.testing.assert_allclose(p[:500], joint / joint.sum(1, keepdims=True), atol=0.02)

    def test_labels_follow_p(self):
        """Among samples with p near v, a share v has the class (5 sigma on each of 40 bins)."""
        _, y, p, _ = make_ambiguous_classification(50_000, random_state=1)
        for c in range(4):
            bins = np.digitize(p[:, c], np.linspace(0, 1, 11)[1:-1])
            for b in np.unique(bins):
                inside = bins == b
                expected, n = p[inside, c], inside.sum()
                sigma = np.sqrt((expected * (1 - expected)).sum()) + 1e-9
                assert abs((y[inside] == c).sum() - expected.sum()) < 5 * sigma + 1, (c, b, n)

    def test_rows_of_p_sum_to_one(self):
        _, _, p, groups = make_ambiguous_classification(100, 3, 7, group_size=3, random_state=0)
        np.testing.assert_allclose(p.sum(axis=1), 1)
        assert groups.tolist() == [0, 0, 0, 1, 1, 1, 2]

    def test_ambiguity_lies_within_the_groups(self):
        _, _, p, groups = make_ambiguous_classification(random_state=0, group_separation=20)
        same = groups[p.argmax(axis=1)][:, None] == groups
        assert (p * same).sum(axis=1).min() > 0.999
        assert p.max(axis=1).mean() < 0.8

    def test_more_ambiguity_lowers_the_best_accuracy(self):
        best = [
            make_ambiguous_classification(5000, ambiguity=a, random_state=0)[2].max(1).mean()
            for a in (0.1, 0.5, 1, 4, 100)
        ]
        assert best == sorted(best, reverse=True)
        assert best[0] > 0.99
        assert best[-1] == pytest.approx(1 / 5, abs=0.02)

    def test_classes_of_weight_zero_are_never_drawn(self):
        _, y, p, _ = make_ambiguous_classification(
            500, n_classes=3, class_weights=[1, 0, 3], random_state=0
        )
        assert 1 not in y
        assert (p[:, 1] == 0).all()

    def test_the_seed_decides_and_leaves_the_global_generator_alone(self):
        np.random.seed(0)
        state = np.random.get_state()[1].copy()
        first, second = (make_ambiguous_classification(50, random_state=3) for _ in range(2))
        assert all(np.array_equal(a, b) for a, b in zip(first, second))
        assert np.array_equal(state, np.random.get_state()[1])

    @pytest.mark.parametrize(
        "params",
        [
            {"n_samples": 0},
            {"n_features": 2.5},
            {"group_size": -1},
            {"ambiguity": 0},
            {"ambiguity": float("nan")},
            {"ambiguity": True},
            {"class_weights": [1, 2]},
            {"class_weights": [-1] * 20},
            {"class_weights": [0] * 20},
            {"class_weights": "a"},
            {"n_samples": True},
            {"group_separation": -1},
            {"group_separation": float("nan")},
            {"group_separation": "far"},
        ],
    )
    def test_bad_parameters_are_named(self, params):
        with pytest.raises((TypeError, ValueError), match=next(iter(params))):
            make_ambiguous_classification(**params)

    def test_ambiguity_is_the_inverse_of_the_distance_of_centres(self):
        for ambiguity in (0.5, 2):
            X, _, p, _ = make_ambiguous_classification(
                1500, 1000, 2, ambiguity=ambiguity, class_weights=[1, 1], random_state=0
            )
            odds = np.log(p[:, 1] / p[:, 0])  # linear in X, along the difference of the centres
            slope = np.linalg.lstsq(np.column_stack([X, np.ones(1500)]), odds)[0][:-1]
            assert np.linalg.norm(slope) == pytest.approx(1 / ambiguity, rel=0.1)


class TestCorruptLabels:
    def test_labels_stay_in_their_group(self):
        y = np.random.default_rng(0).integers(0, 20, 2000)
        noisy = corrupt_labels(y, GROUPS, 1.0, random_state=0)
        assert np.array_equal(GROUPS[noisy], GROUPS[y])

    def test_the_old_label_may_be_drawn_again(self):
        """A share 0.8 p of the labels changes (5 sigma of a binomial, p-value 6e-7)."""
        y = np.random.default_rng(0).integers(0, 20, 100_000)
        for p in (0.1, 0.5, 1.0):
            share = (corrupt_labels(y, GROUPS, p, random_state=1) != y).mean()
            sigma = np.sqrt(0.8 * p * (1 - 0.8 * p) / len(y))
            assert abs(share - 0.8 * p) < 5 * sigma

    def test_new_labels_are_uniform_in_the_group(self):
        noisy = corrupt_labels(np.full(100_000, 7), GROUPS, 1.0, random_state=0)
        share = np.bincount(noisy, minlength=20) / len(noisy)
        np.testing.assert_allclose(share[5:10], 0.2, atol=5 * np.sqrt(0.16 / len(noisy)))

    def test_groups_that_are_not_contiguous(self):
        groups = np.array([1, 0, 1, 0, 1])
        noisy = corrupt_labels(np.zeros(500, int), groups, 1.0, random_state=0)
        assert set(noisy.tolist()) == {0, 2, 4}

    def test_groups_by_label_keep_the_labels(self):
        y = np.array(["b", "a", "c", "b"], dtype=object)
        groups = {"c": 1, "a": 0, "b": 0}
        noisy = corrupt_labels(y, groups, 1.0, random_state=0)
        assert noisy.dtype == object
        assert noisy[2] == "c"
        assert set(noisy[[0, 1, 3]]) <= {"a", "b"}

    def test_long_names_that_y_lacks_are_not_cut(self):
        groups = {"elm": 0, "sycamore": 0}
        assert set(corrupt_labels(["elm"] * 50, groups, 1.0, random_state=0)) == set(groups)

    @pytest.mark.parametrize(
        ("y", "other", "dtype"),
        [
            (np.array(["2024-01-01"], "M8[D]"), np.datetime64("3000-01-01"), "M8[D]"),
            (np.array(["2024-01-01"], "M8[ns]"), np.datetime64("2024-01-02", "D"), "M8[ns]"),
            (np.array(["2024-01-01"], "M8[D]"), np.datetime64("2024-01-01T01", "s"), "M8[s]"),
            (np.array([1], "m8[h]"), np.timedelta64(90, "m"), "m8[m]"),
            (np.array([5], np.int8), 300, "int64"),
        ],
    )
    def test_labels_of_other_units_keep_their_values(self, y, other, dtype):
        noisy = corrupt_labels(np.repeat(y, 50), {y[0]: 0, other: 0}, 1.0, random_state=0)
        assert noisy.dtype == dtype
        assert set(noisy) == {y[0], other}

    @pytest.mark.parametrize(
        ("y", "other"),
        [
            (np.array(["2024-01-01"], "M8[ns]"), np.datetime64("3000-01-01")),
            (np.array([2**63 + 1], np.uint64), -1),
        ],
    )
    def test_labels_that_no_type_holds_together_are_refused(self, y, other):
        with pytest.raises(ValueError, match="^groups holds labels"):
            corrupt_labels(y, {y[0]: 0, other: 0}, 1.0, random_state=0)

    def test_nothing_changes_without_noise_and_y_is_left_alone(self):
        y = np.arange(20)
        assert np.array_equal(corrupt_labels(y, GROUPS, 0), y)
        corrupt_labels(y, GROUPS, 1.0, random_state=0)
        assert np.array_equal(y, np.arange(20))

    def test_superclasses_of_real_images(self, shared_data):
        pack = np.load(shared_data / "cifar100_a.npz")
        fine_to_coarse, y = pack["fine_to_coarse"], pack["y_fine"]
        noisy = corrupt_labels(y, fine_to_coarse, 0.5, random_state=0)
        assert np.array_equal(fine_to_coarse[noisy], fine_to_coarse[y])
        assert noisy.dtype == y.dtype

    @pytest.mark.parametrize("p", [-0.1, 1.1, "half", True, float("nan")])
    def test_p_must_be_a_probability(self, p):
        with pytest.raises(ValueError if type(p) is float else TypeError, match="p must"):
            corrupt_labels([0], [0], p)

    @pytest.mark.parametrize("dtype", ["Int64", "boolean", "category"])
    def test_types_of_pandas_keep_their_values(self, dtype):
        y = pd.Series([0, 1, 1], dtype=dtype)
        noisy = corrupt_labels(y, [0, 1], 1.0)
        assert noisy.dtype == y.to_numpy().dtype
        assert np.array_equal(noisy, y.to_numpy())

    @pytest.mark.parametrize(
        "groups", [None, [], {}, 3, [(0, 1), (0, 1)], [(0,), (0, 1)], {0: ()}]
    )
    def test_groups_are_checked(self, groups):
        with pytest.raises(ValueError, match="^groups "):
            corrupt_labels([0, 1], groups, 0.5)

    def test_groups_in_another_order_than_the_classes(self):
        with pytest.raises(ValueError, match=r"^groups must be in the order .* \[2, 0, 1\]"):
            corrupt_labels([2], pd.Series({2: "b", 0: "a", 1: "a"}), 0.5)

    @pytest.mark.parametrize("y", [["a"], np.array(["a"], dtype=object)])
    def test_labels_of_another_kind_have_no_group(self, y):
        with pytest.raises(ValueError, match=r"without a group.*'a'"):
            corrupt_labels(y, [0, 1], 0.5)

    @pytest.mark.parametrize("y", [[20], [-1], [3, 25]])
    def test_labels_without_a_group_are_named(self, y):
        with pytest.raises(ValueError, match=str(y[-1])):
            corrupt_labels(y, GROUPS, 0.5)


@pytest.mark.parametrize(
    "y", [None, ["a", 1], np.array(["a", None], dtype=object), [[0, 1], [1, 0]], [0.0, np.nan]]
)
def test_labels_are_checked(y):
    for call in (
        lambda: corrupt_labels(y, [0, 1], 0.5),
        lambda: long_tail_indices(y, imbalance=2),
        lambda: train_val_test_indices(y),
    ):
        with pytest.raises(ValueError, match="^y "):
            call()


def test_of_no_labels_none_are_chosen():
    assert len(long_tail_indices([], imbalance=2)) == 0
    assert [len(part) for part in train_val_test_indices([])] == [0, 0, 0]


class TestLongTailIndices:
    y = np.repeat(np.arange(10), 500)

    @pytest.mark.parametrize("imbalance", [1, 10, 100, 12.5])
    def test_the_ratio_of_the_largest_to_the_smallest_is_the_imbalance(self, imbalance):
        n = np.bincount(self.y[long_tail_indices(self.y, imbalance=imbalance)])
        assert n[0] == 500
        assert n[-1] == int(500 / imbalance)
        ratios = n[:-1] / n[1:]
        assert ratios.min() > 0.8 * imbalance ** (1 / 9)

    def test_counts_are_obeyed_up_to_what_there_is(self, shared_data):
        counts = np.load(shared_data / "longtail_counts.npz")
        name = next(k for k in counts.files if "places" in k.lower())
        wanted = counts[name][:10].astype(int)
        kept = long_tail_indices(self.y, counts=wanted, random_state=0)
        n = np.bincount(self.y[kept], minlength=10)
        assert np.array_equal(n, np.minimum(wanted, 500))
        assert np.array_equal(kept, np.unique(kept))

    def test_counts_by_label_may_be_in_any_order(self):
        y = np.repeat(["a", "x"], 10)
        kept = long_tail_indices(y, counts={"x": 7, "a": 3})
        assert dict(zip(*np.unique(y[kept], return_counts=True))) == {"a": 3, "x": 7}

    def test_every_class_keeps_one(self):
        y = np.repeat(np.arange(4), 10)
        assert np.bincount(y[long_tail_indices(y, imbalance=1000)]).tolist() == [10, 1, 1, 1]

    def test_counts_by_label(self):
        y = np.repeat(["x", "a"], 10)
        kept = long_tail_indices(y, counts={"a": 3, "x": 7})
        assert dict(zip(*np.unique(y[kept], return_counts=True))) == {"a": 3, "x": 7}

    def test_samples_of_a_class_are_chosen_at_random(self):
        chosen = [long_tail_indices(self.y, counts=[5] * 10, random_state=s) for s in range(200)]
        share = np.bincount(np.concatenate(chosen), minlength=len(self.y))
        assert np.array_equal(
            chosen[0], long_tail_indices(self.y, counts=[5] * 10, random_state=0)
        )
        assert share.max() < 20
        assert (share > 0).mean() > 0.8

    @pytest.mark.parametrize(
        ("params", "match"),
        [
            ({}, "exactly one"),
            ({"counts": [1] * 10, "imbalance": 2}, "exactly one"),
            ({"imbalance": 0.5}, "imbalance"),
            ({"counts": [1, 2]}, "counts"),
            ({"counts": [0.5] * 10}, "counts"),
            ({"counts": [-1] * 10}, "counts"),
            ({"counts": {0: 1}}, "lacks the classes"),
        ],
    )
    def test_bad_parameters_are_named(self, params, match):
        with pytest.raises(ValueError, match=match):
            long_tail_indices(self.y, **params)


class TestTrainValTestIndices:
    sizes = np.arange(1, 60)
    y = np.random.default_rng(0).permutation(np.repeat(np.arange(1, 60), np.arange(1, 60)))

    def counts(self, **params):
        parts = train_val_test_indices(self.y, **params)
        assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(self.y)))
        return [np.bincount(self.y[part], minlength=60)[1:] for part in parts]

    def test_tenths_are_rounded_up(self):
        _, val, test = self.counts()
        expected = np.where(self.sizes >= 4, np.ceil(self.sizes / 10), 0)
        assert np.array_equal(val, expected)
        assert np.array_equal(test, expected)

    @pytest.mark.parametrize(
        "percent", [(80, 10, 10), (1, 98, 1), (10, 45, 45), (34, 33, 33), (1, 1, 98), (98, 1, 1)]
    )
    def test_classes_of_four_are_in_every_part(self, percent):
        for part in self.counts(percent=percent):
            assert (part[self.sizes >= 4] >= 1).all()

    @pytest.mark.parametrize("percent", [(80, 10, 10), (10, 45, 45), (1, 1, 98)])
    def test_every_class_is_trained(self, percent):
        assert (self.counts(percent=percent)[0] >= 1).all()

    def test_parts_of_no_share_are_empty(self):
        _, val, test = self.counts(percent=(90, 10, 0))
        assert test.sum() == 0
        assert val.sum() > 0

    def test_the_seed_decides(self):
        first, second = (train_val_test_indices(self.y, random_state=4) for _ in range(2))
        assert all(np.array_equal(a, b) for a, b in zip(first, second))
        other = train_val_test_indices(self.y, random_state=5)
        assert not np.array_equal(first[2], other[2])

    @pytest.mark.parametrize(
        "percent", [80, None, "abc", (80, 20), (80, 10, 20), (0.8, 0.1, 0.1), (120, -10, -10)]
    )
    def test_percentages_are_checked(self, percent):
        with pytest.raises(ValueError, match="percent"):
            train_val_test_indices(self.y, percent=percent)


class TestLoadPlantnet300k:
    @pytest.fixture
    def root(self, tmp_path):
        """A small tree with the published layout: 3 species, 2 images in each split."""
        metadata = {}
        for split in ("train", "val", "test"):
            for species in ("1355868", "1355920", "1397268"):
                folder = tmp_path / "images" / split / species
                folder.mkdir(parents=True)
                for i in range(2):
                    image = f"{split}{species}{i}"
                    (folder / f"{image}.jpg").touch()
                    metadata[image] = {
                        "species_id": species,
                        "obs_id": "1",
                        "organ": "flower",
                        "split": split,
                        "license": "cc-by-sa",
                        "author": "A",
                    }
        names = {
            "1355868": "Lactuca virosa L.",
            "1355920": "Pelargonium capitatum",
            "1397268": "Cirsium arvense (L.) Scop.",
        }
        (tmp_path / "plantnet300K_metadata.json").write_text(json.dumps(metadata))
        (tmp_path / "plantnet300K_species_id_2_name.json").write_text(json.dumps(names))
        return tmp_path

    @pytest.mark.parametrize("split", ["train", "val", "test"])
    def test_paths_lie_under_their_species(self, root, split):
        paths, y, names = load_plantnet300k(root, split)
        assert len(paths) == len(y) == 6
        for path, species in zip(paths, y):
            assert f"images/{split}/{species}/{split}{species}" in path.replace("\\", "/")
        assert names["1355868"] == "Lactuca virosa L."

    def test_the_parent_of_the_archive_will_do(self, root, tmp_path_factory):
        parent = tmp_path_factory.mktemp("parent")
        root.rename(parent / "plantnet_300K")
        assert len(load_plantnet300k(parent, "val")[0]) == 6

    def test_unknown_splits(self, root):
        with pytest.raises(ValueError, match="split"):
            load_plantnet300k(root, "validation")

    def test_absent_folders_and_files_are_named(self, root, tmp_path_factory):
        with pytest.raises(FileNotFoundError, match="images/val"):
            load_plantnet300k(tmp_path_factory.mktemp("empty"), "val")
        (root / "plantnet300K_metadata.json").unlink()
        with pytest.raises(FileNotFoundError, match=r"plantnet300K_metadata\.json"):
            load_plantnet300k(root, "val")

    def test_an_incomplete_copy_is_refused(self, root):
        next((root / "images" / "val" / "1355868").iterdir()).unlink()
        with pytest.raises(ValueError, match="1 images of split='val' are absent"):
            load_plantnet300k(root, "val")

    def test_an_image_in_the_wrong_folder_is_refused(self, root):
        folder = root / "images" / "val"
        image = next((folder / "1355868").iterdir())
        image.rename(folder / "1397268" / image.name)
        with pytest.raises(ValueError, match="another species"):
            load_plantnet300k(root, "val")

    def test_an_image_that_lies_in_two_folders_is_refused(self, root):
        folder = root / "images" / "val"
        image = next((folder / "1355868").iterdir())
        for copy in (folder / "1397268" / image.name, image.with_suffix(".jpeg")):
            copy.touch()
            with pytest.raises(ValueError, match="1 images of split='val' are on the disk twice"):
                load_plantnet300k(root, "val")
            copy.unlink()

    def test_endings_in_capitals_are_found(self, root):
        image = root / "images" / "val" / "1355868" / "val13558680.jpg"
        image.rename(image.with_suffix(".JPG"))
        assert len(load_plantnet300k(root, "val")[0]) == 6

    def test_foreign_images_are_refused(self, root):
        (root / "images" / "val" / "1355868" / "mine.jpg").touch()
        with pytest.raises(ValueError, match="not listed"):
            load_plantnet300k(root, "val")


@pytest.mark.parametrize("unit", ["D", "ns"])
def test_counts_may_be_given_by_dates(unit):
    y = np.array(["2020-01-01", "2020-01-01", "2020-01-02"], f"M8[{unit}]")
    counts = {np.datetime64("2020-01-01"): 1, pd.Timestamp("2020-01-02"): 1}
    kept = long_tail_indices(y, counts=counts, random_state=0)
    assert sorted(y[kept].tolist()) == np.unique(y).tolist()
    with pytest.raises(ValueError, match=r"counts lacks the classes \[.*2020, 1, 2"):
        long_tail_indices(y, counts={np.datetime64("2020-01-01"): 1})
    with pytest.raises(ValueError, match="counts lacks the classes"):
        long_tail_indices(y, counts={})
    with pytest.raises(ValueError, match="counts cannot be made an array"):
        long_tail_indices(y, counts=[[1], [1, 2]])
