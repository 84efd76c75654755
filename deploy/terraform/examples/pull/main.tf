# Pull mode: a Cloud Run worker pool with your own handlers, and a Cloud Run service for the API.

locals {
  services = ["compute", "iam", "pubsub", "run", "secretmanager", "servicenetworking", "sqladmin"]

  # An arbitrary string, which must be the same in the tokens and in the service's configuration.
  api_audience = "${var.project}/wakeq"

  # Set for every process that emits or listens.
  broadcast = var.broadcast ? { WAKEQ_BROADCAST = "1" } : {}
}

resource "google_project_service" "this" {
  for_each = toset(local.services)

  project            = var.project
  service            = "${each.value}.googleapis.com"
  disable_on_destroy = false
}

module "network" {
  source     = "../../modules/network"
  project    = var.project
  region     = var.region
  depends_on = [google_project_service.this]
}

module "accounts" {
  source               = "../../modules/accounts"
  project              = var.project
  operators            = var.operators
  kubernetes_namespace = var.kubernetes_namespace
  depends_on           = [google_project_service.this]
}

module "database" {
  source  = "../../modules/database"
  project = var.project
  region  = var.region
  network = module.network.network

  deletion_protection = var.database_deletion_protection

  clients = {
    api     = { account = module.accounts.api, role = "api" }
    worker  = { account = module.accounts.worker, role = "worker" }
    migrate = { account = module.accounts.migrate, role = "owner" }
  }
}

# Encrypts the secrets that sign deliveries. People with access to the database's backups should not have access to it.
module "secret_key" {
  source     = "../../modules/secret_key"
  project    = var.project
  region     = var.region
  readers    = { api = module.accounts.api, worker = module.accounts.worker }
  depends_on = [google_project_service.this]
}

module "queue" {
  source      = "../../modules/queue"
  project     = var.project
  publishers  = merge({ api = module.accounts.api, worker = module.accounts.worker }, var.publishers)
  subscribers = { worker = module.accounts.worker }
  urgent      = var.urgent
  broadcast   = var.broadcast
  listeners   = { api = module.accounts.api }
}

# With Kubernetes, deploy/kubernetes replaces the next two modules.

module "service" {
  count = var.kubernetes_namespace == null ? 1 : 0

  source          = "../../modules/service"
  project         = var.project
  region          = var.region
  image           = var.image
  account         = module.accounts.api
  topic           = module.queue.topic
  audience        = local.api_audience
  database        = { connection_name = module.database.connection_name, secret = module.database.secrets["api"] }
  network         = module.network.network
  subnetwork      = module.network.subnetwork
  trusted_proxies = var.trusted_proxies
  env             = local.broadcast
  secrets         = { WAKEQ_SECRET_KEY = module.secret_key.secret }

  deletion_protection = var.deletion_protection
}

module "workers" {
  count = var.kubernetes_namespace == null ? 1 : 0

  source       = "../../modules/workers"
  project      = var.project
  region       = var.region
  image        = var.worker_image
  account      = module.accounts.worker
  topic        = module.queue.topic
  subscription = module.queue.subscription

  urgent_subscription = module.queue.urgent_subscription

  database   = { connection_name = module.database.connection_name, secret = module.database.secrets["worker"] }
  network    = module.network.network
  subnetwork = module.network.subnetwork
  env        = local.broadcast
  secrets    = { WAKEQ_SECRET_KEY = module.secret_key.secret }

  deletion_protection = var.deletion_protection
}

module "jobs" {
  source          = "../../modules/jobs"
  project         = var.project
  region          = var.region
  image           = var.image
  migrate_account = module.accounts.migrate
  doctor_account  = module.accounts.worker
  topic           = module.queue.topic
  subscription    = module.queue.subscription

  urgent_subscription = module.queue.urgent_subscription

  database       = { connection_name = module.database.connection_name, secret = module.database.secrets["owner"] }
  doctor_secret  = module.database.secrets["worker"]
  api_roles      = [module.database.roles["api"]]
  worker_roles   = [module.database.roles["worker"]]
  network        = module.network.network
  subnetwork     = module.network.subnetwork
  env            = local.broadcast
  doctor_secrets = { WAKEQ_SECRET_KEY = module.secret_key.secret }
}
