"""The example of a service, driven as a person would: a real browser, a photograph, a set."""

import csv
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

pytestmark = pytest.mark.browser

EXAMPLE = Path(__file__).parents[2] / "examples" / "serving"
#: Where the picture of the documentation goes, taken of the model as the example trains it.
PICTURE = os.environ.get("SKSETVALUED_PICTURE")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a copy of the example and its model, trained briefly but for a picture."""
    folder = tmp_path_factory.mktemp("serving") / "example"
    shutil.copytree(EXAMPLE, folder)
    arguments = "" if PICTURE else "n_each=24, max_epochs=12"
    program = f"import make_model; make_model.main({arguments})"
    subprocess.run([sys.executable, "-c", program], cwd=folder, check=True)
    return folder


@pytest.fixture(scope="module")
def service(folder):
    """Yield the address of the service, which runs without torch and without the package."""
    pytest.importorskip("fastapi", reason="extra 'browser' is not installed")
    pytest.importorskip("uvicorn", reason="extra 'browser' is not installed")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    code = (
        "import sys; sys.modules['torch'] = sys.modules['sksetvalued'] = None; "
        f"import uvicorn; uvicorn.run('serve:app', port={port}, log_level='warning')"
    )
    process = subprocess.Popen([sys.executable, "-c", code], cwd=folder)
    address = f"http://127.0.0.1:{port}/"
    try:
        wait_for(address)
        yield address
    finally:
        process.terminate()
        process.wait(10)


def wait_for(address):
    for _ in range(300):
        try:
            urllib.request.urlopen(address)
            return
        except urllib.error.URLError:
            time.sleep(0.2)
    raise TimeoutError(f"{address} did not answer within a minute.")


@pytest.fixture
def browser():
    webdriver = pytest.importorskip("selenium.webdriver", reason="extra 'browser' is missing")
    binary = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("there is no Chromium with its driver on this machine")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--no-first-run",
        "--window-size=900,820",
    ):
        options.add_argument(flag)
    service = webdriver.ChromeService(executable_path=driver)
    with webdriver.Chrome(options=options, service=service) as browser:
        yield browser


def answer(browser):
    """Return the message of the page and the species that it lists."""
    from selenium.webdriver.support.ui import WebDriverWait

    def done(browser):
        text = browser.find_element("id", "message").text
        return text if text and not text.startswith("Looking") else False

    message = WebDriverWait(browser, 60).until(done)
    lines = browser.find_elements("css selector", "main li i")
    return message, [line.get_attribute("textContent") for line in lines]


def test_a_person_gives_a_photograph_and_sees_its_set(service, folder, browser):
    photograph = folder / "photographs" / "Rosa_rubra.png"
    request = urllib.request.Request(service + "sets", data=photograph.read_bytes())
    expected = json.load(urllib.request.urlopen(request))["species"]
    browser.get(service)
    browser.find_element("id", "file").send_keys(str(photograph))
    message, lines = answer(browser)
    assert 1 <= len(expected) <= 5
    assert ("One species fits" if len(expected) == 1 else f"{len(expected)} species") in message
    shown = [f"{s['name']}{round(100 * s['probability'])} %" for s in expected]
    assert lines == shown
    assert [s["probability"] for s in expected] == sorted(
        (s["probability"] for s in expected), reverse=True
    )
    if PICTURE:
        browser.save_screenshot(PICTURE)


def test_what_is_no_image_is_answered_in_words(service, folder, browser):
    browser.get(service)
    browser.find_element("id", "file").send_keys(str(folder / "SERVING.md"))
    message, lines = answer(browser)
    assert "not an image" in message
    assert lines == []


def test_a_folder_becomes_a_table(folder):
    if importlib.util.find_spec("tqdm") is None:
        pytest.skip("extra 'browser' is not installed")
    (folder / "photographs" / "broken.png").write_bytes(b"no image")
    command = [sys.executable, "stream_folder.py", "photographs", "sets.csv", "--batch-size", "7"]
    subprocess.run(command, cwd=folder, check=True)
    with open(folder / "sets.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 21
    assert [row["path"] for row in rows if row["error"]] == ["photographs/broken.png"]
    for row in rows:
        assert bool(row["species"]) != bool(row["error"])
        probabilities = [float(p) for p in row["probabilities"].split(";") if p]
        assert probabilities == sorted(probabilities, reverse=True)
