"""What the store is known to have lost stays on record."""

from app.storage.embedded.losses import Losses


def test_losses_are_kept_until_the_file_is_removed(tmp_path):
    losses = Losses(tmp_path)
    for what in ("a", "b", "b", "c", "d", "e", "f"):
        losses.record(what)
    assert Losses(tmp_path).known().what == "b; c; d; e; f"
    losses.path.write_text("nonsense")
    assert "damaged" in losses.known().what
    losses.path.unlink()
    assert losses.known() is None
