"""Other values in the text of a qm.ini: nothing else changes."""

import pytest

from qmgr.errors import IniError
from qmgr.reword import reworded

PATH = "/data/qm.ini"


def test_a_value_changes_and_all_around_it_stays() -> None:
    text = b"# mine\r\nLOG:\r\n\tlogpath = /a/b/\t; here\r\n\tLogType=circular# now\r\n\r\nTuningParameters:\r\n"
    expected = text.replace(b"/a/b/", b"/c").replace(b"circular", b"LINEAR")
    assert reworded(text, PATH, {"LogPath": "/c", "LogType": "LINEAR"}) == expected


def test_an_attribute_that_is_not_there_is_added_to_its_stanza() -> None:
    text = b"QMErrorLog:\n   ErrorLogFormat=json\nLog:\n   LogPath=/a\n"
    assert reworded(text, PATH, {"LogType": "LINEAR"}) == text.replace(
        b"Log:\n   LogPath", b"Log:\n   LogType=LINEAR\n   LogPath"
    )


def test_of_several_attributes_on_one_line_only_the_one_changes() -> None:
    text = b"TCP: LogType=x\nLog: LogPath=/a b  LogType= CIRCULAR LogPrimaryFiles=3 ; LogType=y\n"
    changed = reworded(text, PATH, {"LogType": "LINEAR", "LogPath": "/c"})
    assert changed == text.replace(b"/a b", b"/c").replace(b"CIRCULAR", b"LINEAR")


def test_the_same_name_in_another_stanza_is_another_attribute() -> None:
    text = b"TCP:\n   LogType=CIRCULAR\nLog:\n   LogPath=/a\n   LogType=CIRCULAR\n"
    changed = reworded(text, PATH, {"LogType": "LINEAR"})
    assert changed == b"TCP:\n   LogType=CIRCULAR\nLog:\n   LogPath=/a\n   LogType=LINEAR\n"


@pytest.mark.parametrize("path", ["/a#b", "relative", "/a\nb"])
def test_what_could_not_be_read_again_is_refused(path: str) -> None:
    with pytest.raises(IniError):
        reworded(b"Log:\n   LogPath=/a\n", PATH, {"LogPath": path})


def test_nothing_to_change_changes_nothing() -> None:
    text = b"Log:\n LogPath=/a ;\n"
    assert reworded(text, PATH, {}) == text
