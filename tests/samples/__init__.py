"""The patterns that ADK's documentation and samples teach, each a small program of our own."""

from __future__ import annotations

from importlib import import_module

from tests.samples.sample import Sample

NAMES = (
    # workflows
    "seed_order",
    "parcel_desk",
    "well_survey",
    "subtitle_loop",
    "ferry_trips",
    "storm_claims",
    "tide_gauge",
    "museum_labels",
    "puzzle_critic",
    "pump_house",
    # human input
    "telescope_loan",
    "headline_review",
    "fuel_cards",
    "studio_hours",
    "grant_office",
    "two_keys",
    "launch_gates",
    "ticket_choice",
    # multi-agent
    "inn_desk",
    "speech_pipeline",
    "harbour_brief",
    "sonnet_workshop",
    "kiln_tuning",
    "almanac",
    "lullaby",
    "wedding_team",
    "customs_form",
    # tools and what is around them
    "orchard_tools",
    "map_archive",
    "piano_tutor",
    "receipt_reader",
    "slide_rule",
    "workbench",
    "bakery_tool",
    "pharmacy_guard",
    "allowance_app",
    "radio_play",
    "ship_log",
)

SAMPLES: dict[str, Sample] = {name: import_module(f"{__name__}.{name}").SAMPLE for name in NAMES}
